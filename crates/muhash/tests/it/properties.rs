//! What must hold for any elements.

use num_bigint::BigUint;
use proptest::prelude::*;
use sapwood_muhash::MuHash;

#[derive(Clone, Debug)]
enum Update {
    Insert(Vec<u8>),
    Remove(Vec<u8>),
}

fn element() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..200)
}

fn updates() -> impl Strategy<Value = Vec<Update>> {
    let update = prop_oneof![element().prop_map(Update::Insert), element().prop_map(Update::Remove)];
    prop::collection::vec(update, 0..20)
}

fn apply(set: &mut MuHash, updates: &[Update]) {
    for update in updates {
        match update {
            Update::Insert(data) => set.insert(data),
            Update::Remove(data) => set.remove(data),
        }
    }
}

fn set_of(updates: &[Update]) -> MuHash {
    let mut set = MuHash::new();
    apply(&mut set, updates);
    set
}

/// The two numbers of a set, read from its stored form.
fn fraction(set: &MuHash) -> [BigUint; 2] {
    let bytes = set.to_bytes();
    [BigUint::from_bytes_le(&bytes[1..385]), BigUint::from_bytes_le(&bytes[385..])]
}

proptest! {
    // Each case makes digests, which take milliseconds.
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn order_does_not_matter((one, other) in updates().prop_flat_map(|all| {
        (Just(all.clone()), Just(all).prop_shuffle())
    })) {
        let (one, other) = (set_of(&one), set_of(&other));
        prop_assert_eq!(one.finalize(), other.finalize());
        prop_assert_eq!(one, other);
    }

    #[test]
    fn remove_undoes_insert_and_insert_undoes_remove(before in updates(), data in element()) {
        let set = set_of(&before);
        let digest = set.finalize();
        let mut after = set.clone();
        after.insert(&data);
        prop_assert_ne!(&after, &set);
        prop_assert_ne!(after.finalize(), digest);
        after.remove(&data);
        prop_assert_eq!(after.finalize(), digest);

        let mut after = set.clone();
        after.remove(&data);
        prop_assert_ne!(&after, &set);
        after.insert(&data);
        prop_assert_eq!(after.finalize(), digest);
        prop_assert_eq!(after, set);
    }

    #[test]
    fn combining_shards_is_applying_them_in_sequence(first in updates(), second in updates()) {
        let mut combined = set_of(&first);
        combined.combine(&set_of(&second));
        let mut sequence = set_of(&first);
        apply(&mut sequence, &second);
        prop_assert_eq!(combined.finalize(), sequence.finalize());
        prop_assert_eq!(combined.to_bytes(), sequence.to_bytes());
    }

    #[test]
    fn a_stored_set_goes_on_as_if_never_stored(before in updates(), after in updates()) {
        let mut set = set_of(&before);
        let mut restored = MuHash::from_bytes(&set.to_bytes()).unwrap();
        apply(&mut set, &after);
        apply(&mut restored, &after);
        prop_assert_eq!(set.to_bytes(), restored.to_bytes());
    }

    #[test]
    fn finalize_changes_nothing(updates in updates()) {
        let set = set_of(&updates);
        let before = set.to_bytes();
        prop_assert_eq!(set.finalize(), set.finalize());
        prop_assert_eq!(set.to_bytes(), before);
    }

    #[test]
    fn the_digest_is_that_of_the_quotient(updates in updates()) {
        let p = (BigUint::from(1u8) << 3072) - 1_103_717u32;
        let set = set_of(&updates);
        let [numerator, denominator] = fraction(&set);
        let quotient = numerator * denominator.modinv(&p).unwrap() % &p;
        // The same quotient over one takes the way without an inversion.
        let mut bytes = MuHash::new().to_bytes();
        let digits = quotient.to_bytes_le();
        bytes[1..385].fill(0);
        bytes[1..=digits.len()].copy_from_slice(&digits);
        prop_assert_eq!(MuHash::from_bytes(&bytes).unwrap().finalize(), set.finalize());
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused_without_a_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..1000),
        fitting in any::<bool>(),
    ) {
        if fitting {
            bytes.resize(MuHash::STATE_LEN, 0xff);
            bytes[0] = 1;
        }
        if let Ok(set) = MuHash::from_bytes(&bytes) {
            let stored = set.to_bytes();
            prop_assert_eq!(stored.as_slice(), bytes.as_slice());
        }
    }
}
