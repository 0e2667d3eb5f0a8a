//! What bytes of the shared file say: of which writes they are.

use braid_linear::content;

/// What stands at a unit boundary.
pub(super) fn whole(bytes: u64, unit: usize, answer: fn(usize) -> content::Answer) -> content::Answer {
    match bytes.is_multiple_of(unit as u64) {
        true => answer(bytes as usize / unit),
        false => content::Answer::Torn(format!("{bytes} bytes, in units of {unit}")),
    }
}

/// The writes that `bytes` are from.
pub(super) fn units_of(bytes: &[u8], unit: usize) -> content::Answer {
    if !bytes.len().is_multiple_of(unit) {
        return content::Answer::Torn(format!("{} bytes, in units of {unit}", bytes.len()));
    }
    let mut tags = Vec::with_capacity(bytes.len() / unit);
    for (number, bytes) in bytes.chunks_exact(unit).enumerate() {
        let (words, _) = bytes.as_chunks::<4>();
        let first = words.first().copied().unwrap_or_default();
        if let Some(other) = words.iter().find(|word| **word != first) {
            let (first, other) = (u32::from_le_bytes(first), u32::from_le_bytes(*other));
            return content::Answer::Torn(format!("unit {number} is of write {first} and of {other}"));
        }
        tags.push(u32::from_le_bytes(first));
    }
    content::Answer::Units(tags)
}
