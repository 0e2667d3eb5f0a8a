//! The keys of objects. The digits of numbers are written backwards, so that keys that follow each other in time are
//! spread over the key space of a store that divides it by first letters.

use braid_base::ids::{BlobId, Guid, HostId, PartitionId, Term};

/// What every key of data begins with: a listing of it finds the objects of all clusters.
pub const DATA: &str = "B_";

/// The key of an object with data.
pub fn data(cluster: Guid, blob: BlobId, term: Term) -> String {
    format!("{}{}/{}", prefix_of_partition(cluster, blob.partition()), backwards(blob.serial()), term.0)
}

/// The cluster, object and term that a key of [`data`] names; none: it is another key.
pub fn parse_data(key: &str) -> Option<(Guid, BlobId, Term)> {
    let mut words = key.split('/');
    let partition = forwards(words.next()?.strip_prefix(DATA)?)?;
    let cluster = Guid::parse(words.next()?)?;
    let kind = words.next()?;
    let serial = forwards(words.next()?.strip_prefix("I_")?)?;
    let term = Term(words.next()?.parse().ok()?);
    let partition = PartitionId(partition.try_into().ok()?);
    if kind != "d" || serial == 0 || serial >> 48 != 0 {
        return None;
    }
    let blob = BlobId::new(partition, serial);
    // One object has one key: other spellings of the same numbers are none.
    (data(cluster, blob, term) == key).then_some((cluster, blob, term))
}

/// What the keys of data of a partition begin with.
pub fn prefix_of_partition(cluster: Guid, partition: PartitionId) -> String {
    format!("{DATA}{}/{cluster}/d/I_", backwards(partition.0.into()))
}

/// A key under which a host tries out a store, for one of the things that it tries (`rw`: it writes, reads and removes
/// it; `remove`: it removes it though there is none; `keepalive`: it reads it again and again). The GUID's first eight
/// digits come first and the others last, as in all keys that are not of one partition.
pub fn verify(cluster: Guid, host: HostId, what: &str) -> String {
    let text = cluster.to_string();
    let (prefix, suffix) = text.split_once('-').expect("a GUID is shown with dashes");
    format!("{prefix}/verify/{}/{what}/{suffix}", host.0)
}

fn backwards(number: u64) -> String {
    number.to_string().chars().rev().collect()
}

fn forwards(digits: &str) -> Option<u64> {
    digits.chars().rev().collect::<String>().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{data, parse_data, prefix_of_partition, verify};
    use braid_base::ids::{BlobId, Guid, HostId, PartitionId, Term};

    const CLUSTER: Guid = Guid([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);

    #[test]
    fn digits_are_backwards_without_padding() {
        let key = |partition, serial, term| data(CLUSTER, BlobId::new(PartitionId(partition), serial), Term(term));
        assert_eq!(key(145, 1_230, 17), "B_541/01020304-0506-0708-090a-0b0c0d0e0f10/d/I_0321/17");
        assert_eq!(key(700, 9, 100), "B_007/01020304-0506-0708-090a-0b0c0d0e0f10/d/I_9/100");
        assert!(key(700, 9, 1).starts_with(&prefix_of_partition(CLUSTER, PartitionId(700))));
    }

    #[test]
    fn keys_come_back() {
        for partition in [0, 7, 10, 700, 4_095, u16::MAX] {
            for serial in [1, 10, 1_000_200, (1 << 48) - 1] {
                for term in [0, 10, u64::MAX] {
                    let (blob, term) = (BlobId::new(PartitionId(partition), serial), Term(term));
                    assert_eq!(parse_data(&data(CLUSTER, blob, term)), Some((CLUSTER, blob, term)));
                }
            }
        }
    }

    #[test]
    fn other_keys_are_none() {
        let guid = CLUSTER.to_string();
        for key in [
            String::new(),
            "B_1".to_owned(),
            format!("B_1/{guid}/m/I_1/1"),
            format!("B_1/{guid}/d/I_1/1/1"),
            format!("B_1/{guid}/d/I_0/1"),
            format!("B_1/{guid}/d/I_10/1"),
            format!("B_10/{guid}/d/I_1/1"),
            format!("B_1/{guid}/d/I_1/01"),
            format!("B_1/{guid}/d/I_1/+1"),
            format!("B_99999/{guid}/d/I_1/1"),
            format!("B_1/{guid}/d/I_{}/1", "9".repeat(18)),
            format!("B_1/{}/d/I_1/1", guid.replace('-', "")),
            format!("B_1/{}/d/I_1/1", guid.to_uppercase()),
            format!("b_1/{guid}/d/I_1/1"),
        ] {
            assert_eq!(parse_data(&key), None, "{key}");
        }
    }

    #[test]
    fn keys_of_trials_have_the_guid_in_two_parts() {
        assert_eq!(verify(CLUSTER, HostId(3), "rw"), "01020304/verify/3/rw/0506-0708-090a-0b0c0d0e0f10");
        assert_eq!(verify(CLUSTER, HostId(3), "remove"), "01020304/verify/3/remove/0506-0708-090a-0b0c0d0e0f10");
    }
}
