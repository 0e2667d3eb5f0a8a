//! How the words of `braid_base` are written in JSON: numbers as numbers, identities as text.

macro_rules! number {
    ($($module:ident $type:ident $inner:ty),*) => { $(
        pub(super) mod $module {
            use braid_base::ids::$type;
            use serde::{Deserialize, Deserializer, Serialize, Serializer};

            pub fn serialize<S: Serializer>(value: &$type, to: S) -> Result<S::Ok, S::Error> {
                value.0.serialize(to)
            }

            pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<$type, D::Error> {
                <$inner>::deserialize(from).map($type)
            }
        }
    )* };
}
number!(host HostId u32, drive DriveId u32, fs FsId u32, domain DomainId u16, partition PartitionId u16, store StoreId u32, vp Vp u16, term Term u64);

/// A host that may be none.
pub(super) mod host_maybe {
    use braid_base::ids::HostId;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(value: &Option<HostId>, to: S) -> Result<S::Ok, S::Error> {
        value.map(|id| id.0).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<HostId>, D::Error> {
        Ok(Option::<u32>::deserialize(from)?.map(HostId))
    }
}

/// An identity.
pub(super) mod guid {
    use braid_base::ids::Guid;
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(value: &Guid, to: S) -> Result<S::Ok, S::Error> {
        value.to_string().serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Guid, D::Error> {
        let text = String::deserialize(from)?;
        Guid::parse(&text).ok_or_else(|| D::Error::custom(format!("a UUID expected, found {text:?}")))
    }
}
