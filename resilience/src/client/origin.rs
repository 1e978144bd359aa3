//! Where an attempt to log in comes from, as a hash that all instances agree about.

use sha2::{Digest, Sha256};

/// The hash of these parts: 64 bits of SHA-256, never one of the values that stand for no origin.
///
/// Not keyed by the process: a success at one instance removes failures of the same origin that another has counted.
pub(crate) fn origin(parts: &[&[u8]]) -> u64 {
    let mut hash = Sha256::new();
    for part in parts {
        // With its length, so that no two lists of parts are the same bytes.
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let digest = hash.finalize();
    let (first, _) = digest.split_first_chunk::<8>().expect("a digest has 32 bytes");
    u64::from_be_bytes(*first).clamp(1, u64::MAX - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_agree_and_parts_are_told_apart() {
        // The first 8 bytes of SHA-256 over `\0\0\0\0\0\0\0\x03ada`.
        assert_eq!(origin(&[b"ada"]), 0x9987_e1a2_2608_d8a9);
        let lists: [&[&[u8]]; 5] = [&[], &[b""], &[b"ada"], &[b"ad", b"a"], &[b"a", b"da"]];
        for (nth, list) in lists.iter().enumerate() {
            for other in &lists[nth + 1..] {
                assert_ne!(origin(list), origin(other), "{list:?} {other:?}");
            }
        }
    }
}
