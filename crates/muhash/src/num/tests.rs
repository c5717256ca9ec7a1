//! Our numbers against `num-bigint`'s, with limbs at the edges: random ones never reach the rare carries.

use num_bigint::BigUint;
use proptest::prelude::*;

use super::*;

fn big(limbs: &[u64]) -> BigUint {
    let bytes: Vec<u8> = limbs.iter().flat_map(|limb| limb.to_le_bytes()).collect();
    BigUint::from_bytes_le(&bytes)
}

fn p() -> BigUint {
    (BigUint::from(1u8) << 3072) - C
}

/// Limbs that make long carries likely.
fn edgy<const N: usize>() -> impl Strategy<Value = [u64; N]> {
    let limb = prop_oneof![
        3 => Just(u64::MAX),
        2 => Just(0),
        1 => Just(C.wrapping_neg()),
        1 => Just(C.wrapping_neg() - 1),
        1 => any::<u64>(),
    ];
    prop::collection::vec(limb, N).prop_map(|limbs| limbs.try_into().unwrap())
}

/// Mostly one limb repeated, so that whole numbers lie at the edges of 0..2^3072.
fn edge<const N: usize>() -> impl Strategy<Value = [u64; N]> {
    let fill = prop_oneof![Just(0), Just(u64::MAX)];
    (fill, 0..4 * C, any::<bool>(), 0..N, any::<u64>()).prop_map(|(fill, offset, odd, at, limb)| {
        let mut limbs = [fill; N];
        limbs[0] = fill ^ offset;
        if odd {
            limbs[at] = limb;
        }
        limbs
    })
}

fn any_limbs<const N: usize>() -> impl Strategy<Value = [u64; N]> {
    prop_oneof![edgy(), edge(), prop::collection::vec(any::<u64>(), N).prop_map(|v| v.try_into().unwrap())]
}

proptest! {
    #[test]
    fn reduced_is_the_remainder(limbs in any_limbs()) {
        prop_assert_eq!(big(&Num::reduced(limbs).0), big(&limbs) % p());
    }

    #[test]
    fn product_is_exact(a in any_limbs(), b in any_limbs()) {
        prop_assert_eq!(big(&product(&a, &b)), big(&a) * big(&b));
    }

    #[test]
    fn reduce_is_the_remainder(wide in any_limbs()) {
        prop_assert_eq!(big(&reduce(&wide).0), big(&wide) % p());
    }

    #[test]
    fn only_1_to_p_is_in_range(limbs in any_limbs()) {
        let value = big(&limbs);
        prop_assert_eq!(Num::in_range(limbs).is_some(), value > BigUint::ZERO && value < p());
    }
}

proptest! {
    // An inversion takes milliseconds.
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn a_number_times_its_inverse_is_one(limbs in any_limbs()) {
        let number = Num::reduced(limbs);
        prop_assume!(number != Num([0; LIMBS]));
        prop_assert_eq!(number.mul(&number.inverse()), Num::ONE);
    }
}

/// The fold of this one carries out of the top twice, which no product of two reduced numbers is likely to do.
#[test]
fn reduce_survives_the_largest_number() {
    let wide = [u64::MAX; 2 * LIMBS];
    assert_eq!(big(&reduce(&wide).0), big(&wide) % p());
}

#[test]
fn p_itself_is_zero_and_p_less_one_squared_is_one() {
    let mut limbs = [u64::MAX; LIMBS];
    limbs[0] = C.wrapping_neg();
    assert_eq!(big(&limbs), p());
    assert_eq!(Num::reduced(limbs), Num([0; LIMBS]));
    limbs[0] -= 1;
    let minus_one = Num::reduced(limbs);
    assert_eq!(minus_one.mul(&minus_one), Num::ONE);
    assert_eq!(minus_one.inverse(), minus_one);
}

/// Bitcoin Core, `crypto_tests.cpp`, `muhash_tests`: a numerator of 384 bytes `ff`, above the modulus.
#[test]
fn core_overflow_vector() {
    let set = crate::MuHash { numerator: Num::reduced([u64::MAX; LIMBS]), denominator: Num::ONE };
    let mut digest = set.finalize();
    // Core prints this one byte by byte, not in display order.
    digest.reverse();
    assert_eq!(
        crate::display_hex(&digest),
        "3a31e6903aff0de9f62f9a9f7f8b861de76ce2cda09822b90014319ae5dc2271"
    );
}
