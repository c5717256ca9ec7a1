//! Bitcoin Core's own test vectors (`src/test/crypto_tests.cpp`, `muhash_tests`) and the stored form.

use sapwood_muhash::{MuHash, Part, StateError, display_hex};

/// Core's `FromInt`: the 32 bytes `i, 0, 0, …`.
fn int(i: u8) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[0] = i;
    bytes
}

fn set_of(i: u8) -> MuHash {
    let mut set = MuHash::new();
    set.insert(&int(i));
    set
}

#[test]
fn zero_times_one_over_two() {
    let expected = "10d312b100cbd32ada024a6646e40d3482fcff103668d2625f10002a607d5863";

    let mut set = set_of(0);
    set.insert(&int(1));
    set.remove(&int(2));
    assert_eq!(display_hex(&set.finalize()), expected);

    let mut combined = set_of(0);
    combined.combine(&set_of(1));
    combined.remove(&int(2));
    assert_eq!(display_hex(&combined.finalize()), expected);
}

#[test]
fn the_order_of_four_updates_does_not_matter() {
    // Core does this with four random numbers at a time, the sign saying whether to insert or to remove.
    let updates = [3, -7, 0, 12_i8];
    let digest = |order: usize| {
        let mut set = MuHash::new();
        for i in 0..updates.len() {
            let update = updates[i ^ order];
            let bytes = int(update.unsigned_abs());
            if update < 0 { set.remove(&bytes) } else { set.insert(&bytes) }
        }
        set.finalize()
    };
    for order in 1..updates.len() {
        assert_eq!(digest(order), digest(0), "order {order}");
    }
}

#[test]
fn empty_set() {
    // Bitcoin Core, `src/test/fuzz/muhash.cpp`, `initial_state_hash`.
    assert_eq!(
        display_hex(&MuHash::new().finalize()),
        "dd5ad2a105c2d29495f577245c357409002329b9f4d6182c0af3dc2f462555c8"
    );
}

/// Core's serialisation of `FromInt(1) * FromInt(2)`: the numerator; the denominator is one.
const ONE_TIMES_TWO: &str = concat!(
    "1fa093295ea30a6a3acdc7b3f770fa538eff537528e990e2910e40bbcfd7f6696b1256901929094694b56316de342f593303dd12",
    "ac43e06dce1be1ff8301c845beb15468fff0ef002dbf80c29f26e6452bccc91b5cb9437ad410d2a67ea847887fa3c6a6553309946",
    "880fe20db2c73fe0641adbd4e86edfee0d9f8cd0ee1230898873dc13ed8ddcaf045c80faa082774279007a2253f8922ee3ef361d3",
    "78a6af3ddaf180b190ac97e556888c36b3d1fb1c85aab9ccd46e3deaeb7b7cf5db067a7e9ff86b658cf3acd6662bbcce37232daa7",
    "53c48b794356c020090c831a8304416e2aa7ad633c0ddb2f11be1be316a81be7f7e472071c042cb68faef549c221ebff209273638",
    "b741aba5a81675c45a5fa92fea4ca821d7a324cb1e1a2ccd3b76c4228ec8066dad2a5df6e1bd0de45c7dd5de8070bdb46db6c554c",
    "f9aefc9b7b2bbf9f75b1864d9f95005314593905c0109b71f703d49944ae94477b51dac10a816bb6d1c700bafabc8bd86fac8df24",
    "be519a2f2836b16392e18036cb13e48c5c",
);

#[test]
fn stored_form_is_the_version_and_cores_bytes() {
    let mut set = set_of(1);
    set.insert(&int(2));
    let stored = set.to_bytes();
    let hex: String = stored[1..385].iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(stored[0], 1);
    assert_eq!(hex, ONE_TIMES_TWO);
    assert_eq!(stored[385], 1);
    assert!(stored[386..].iter().all(|&byte| byte == 0));
}

#[test]
fn fuzzing_starts_from_an_empty_set_and_from_a_fraction() {
    let mut fraction = MuHash::new();
    fraction.insert(b"a coin that stays");
    fraction.insert(b"a coin that goes");
    fraction.remove(b"a coin that goes");
    assert_eq!(fraction.to_bytes(), *include_bytes!("../../../../fuzz/seeds/muhash_state/fraction"));
    assert_eq!(MuHash::new().to_bytes(), *include_bytes!("../../../../fuzz/seeds/muhash_state/empty"));
}

#[test]
fn damaged_stored_forms_are_refused() {
    let good = set_of(1).to_bytes();
    let refused = |bytes: &[u8]| MuHash::from_bytes(bytes).unwrap_err();

    assert_eq!(refused(&[]), StateError::Length { found: 0 });
    assert_eq!(refused(&good[..768]), StateError::Length { found: 768 });
    assert_eq!(refused(&[&good[..], &[0]].concat()), StateError::Length { found: 770 });

    // A version that this program does not know may have any length.
    assert_eq!(refused(&[2, 0, 0]), StateError::Version { found: 2 });
    let mut bytes = good;
    bytes[0] = 0;
    assert_eq!(refused(&bytes), StateError::Version { found: 0 });

    // 2^3072 - 1103717, little-endian, and its neighbour below, which is the largest number allowed.
    let mut modulus = [0xff; 384];
    modulus[..3].copy_from_slice(&[0x9b, 0x28, 0xef]);
    let mut largest = modulus;
    largest[0] -= 1;
    for (range, part) in [(1..385, Part::Numerator), (385..769, Part::Denominator)] {
        for number in [[0; 384], modulus, [0xff; 384]] {
            let mut bytes = good;
            bytes[range.clone()].copy_from_slice(&number);
            assert_eq!(refused(&bytes), StateError::OutOfRange { part });
        }
        let mut bytes = good;
        bytes[range].copy_from_slice(&largest);
        assert_eq!(MuHash::from_bytes(&bytes).unwrap().to_bytes(), bytes);
    }
}

#[test]
fn errors_say_what_is_wrong() {
    let message = StateError::OutOfRange { part: Part::Denominator }.to_string();
    assert!(message.starts_with("the denominator of a stored MuHash"), "{message}");
    let message = StateError::Length { found: 3 }.to_string();
    assert!(message.starts_with("a stored MuHash has 769 bytes, not 3"), "{message}");
}
