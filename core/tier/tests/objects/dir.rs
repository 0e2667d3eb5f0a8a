//! A directory as a store, against a map.

use std::collections::BTreeMap;

use braid_base::ErrorKind;
use braid_base::store::{Place, StoreSpec};
use braid_io::chance::Rng;
use braid_tier::{LIST_MAX, Listed, Store, open};
use bytes::Bytes;
use std::sync::Arc;

fn at(folder: &tempfile::TempDir) -> Arc<dyn Store> {
    open(&StoreSpec::at(Place::Dir { path: folder.path().to_str().unwrap().to_owned() })).unwrap()
}

/// Names around the slash in the order of bytes, so that directories do not sort as their names do.
fn key(rng: &mut Rng) -> String {
    let top = ["a", "a!", "a-b", "a.b", "b", "a0"][rng.index(6)];
    match rng.below(3) {
        0 => format!("{top}/x{}", rng.below(6)),
        1 => format!("{top}/deep/er/{}", rng.below(4)),
        _ => format!("file-{}", rng.below(6)),
    }
}

#[tokio::test]
async fn it_behaves_as_a_map() {
    let folder = tempfile::tempdir().unwrap();
    let store = at(&folder);
    let (mut model, mut rng) = (BTreeMap::<String, Vec<u8>>::new(), Rng::new(5));
    for step in 0..1500 {
        let key = key(&mut rng);
        match rng.below(6) {
            0 | 1 => {
                let mut bytes = vec![0; rng.index(3000)];
                rng.fill(&mut bytes);
                let (first, second) = bytes.split_at(bytes.len() / 3);
                let parts = vec![Bytes::copy_from_slice(first), Bytes::copy_from_slice(second)];
                store.put(&key, parts).await.unwrap();
                model.insert(key, bytes);
            }
            2 => {
                store.delete(&key).await.unwrap();
                model.remove(&key);
            }
            3 => {
                let (start, length) = (rng.below(2000), rng.below(1500));
                let found = store.get(&key, Some(start..start + length)).await.map_err(|error| error.kind());
                let expected = match model.get(&key) {
                    None => Err(ErrorKind::NotFound),
                    Some(bytes) => bytes
                        .get(usize::try_from(start).unwrap()..usize::try_from(start + length).unwrap())
                        .map(Bytes::copy_from_slice)
                        .ok_or(ErrorKind::Range),
                };
                assert_eq!(found, expected, "step {step}");
            }
            4 => {
                let found = store.size(&key).await.map_err(|error| error.kind());
                assert_eq!(found, model.get(&key).map(|b| b.len() as u64).ok_or(ErrorKind::NotFound), "step {step}");
                let found = store.get(&key, None).await.map_err(|error| error.kind());
                assert_eq!(found, model.get(&key).cloned().map(Bytes::from).ok_or(ErrorKind::NotFound), "step {step}");
            }
            _ => {
                let prefix = ["", "a", "a/", "a/d", "a/deep/er", "file", "zzz"][rng.index(7)];
                let after = Some(key).filter(|_| rng.chance(1, 2));
                let mut found = store.list(prefix, after.as_deref()).await.unwrap();
                for listed in &mut found {
                    assert!(listed.modified_s > 1_700_000_000, "{listed:?}: it was just written");
                    listed.modified_s = 0;
                }
                let expected: Vec<Listed> = model
                    .iter()
                    .filter(|(key, _)| key.starts_with(prefix) && after.as_ref().is_none_or(|after| *key > after))
                    .map(|(key, bytes)| Listed { key: key.clone(), size: bytes.len() as u64, modified_s: 0 })
                    .collect();
                assert_eq!(found, expected, "step {step}: {prefix} after {after:?}");
            }
        }
    }
    for key in model.keys() {
        store.delete(key).await.unwrap();
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "no temporary files, no empty directories");
}

#[tokio::test]
async fn what_a_killed_writer_left_goes_with_its_object() {
    let folder = tempfile::tempdir().unwrap();
    let (store, below) = (at(&folder), folder.path().join("d/I_5"));
    store.put("d/I_5/7", vec![Bytes::from_static(b"x")]).await.unwrap();
    let left = |name: &str| below.join(format!(".braid-writing-0123456789abcdef-{name}"));
    for name in ["7", "8", "17"] {
        std::fs::write(left(name), b"half").unwrap();
    }
    assert_eq!(store.list("", None).await.unwrap().len(), 1);
    store.delete("d/I_5/7").await.unwrap();
    assert!(!left("7").exists() && left("8").exists() && left("17").exists(), "only what was to be this object");
    // Those were never whole.
    store.delete("d/I_5/8").await.unwrap();
    store.delete("d/I_5/17").await.unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    // A name that has no room beside the number.
    let long = "n".repeat(255);
    store.put(&long, vec![]).await.unwrap();
    store.delete(&long).await.unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn keys_do_not_lead_out() {
    let folder = tempfile::tempdir().unwrap();
    let store = at(&folder);
    for key in ["../x", "a/../../x", "/etc/passwd", "", "a//b", "a/", ".", "a/./b", "a\0b", ".braid-writing-1"] {
        assert_eq!(store.put(key, vec![]).await.unwrap_err().kind(), ErrorKind::Invalid, "{key:?}");
        assert_eq!(store.get(key, None).await.unwrap_err().kind(), ErrorKind::Invalid, "{key:?}");
        assert_eq!(store.delete(key).await.unwrap_err().kind(), ErrorKind::Invalid, "{key:?}");
    }
}

#[tokio::test]
async fn long_listings_come_in_pages() {
    let folder = tempfile::tempdir().unwrap();
    let store = at(&folder);
    for n in 0..LIST_MAX + 5 {
        std::fs::create_dir_all(folder.path().join(format!("d{}", n % 3))).unwrap();
        std::fs::write(folder.path().join(format!("d{}/{n:05}", n % 3)), b"x").unwrap();
    }
    let first = store.list("", None).await.unwrap();
    assert_eq!(first.len(), LIST_MAX);
    let rest = store.list("", Some(&first[LIST_MAX - 1].key)).await.unwrap();
    assert_eq!(rest.len(), 5);
}

#[tokio::test]
async fn a_directory_that_is_not_mounted_loses_no_objects() {
    let folder = tempfile::tempdir().unwrap();
    let store = at(&folder);
    let root = folder.path().to_owned();
    drop(folder);
    assert_eq!(store.get("a", None).await.unwrap_err().kind(), ErrorKind::Io, "not NotFound");
    assert_eq!(store.put("a/b", vec![]).await.unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(store.list("", None).await.unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(store.delete("a/b").await.unwrap_err().kind(), ErrorKind::Io);
    assert!(!root.exists(), "and it is not made");
}

#[tokio::test]
async fn keys_that_are_part_of_another_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = at(&folder);
    store.put("a", vec![]).await.unwrap();
    assert_eq!(store.put("a/b", vec![]).await.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(store.put("a/b/c", vec![]).await.unwrap_err().kind(), ErrorKind::Invalid);
    store.put("d/e", vec![]).await.unwrap();
    assert_eq!(store.put("d", vec![]).await.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(store.list("", None).await.unwrap().len(), 2);
}
