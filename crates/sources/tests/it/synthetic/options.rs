//! Options that make no chain are refused with what to do about it.

use sapwood_sources::synthetic::{OptionsError, SyntheticChain, SyntheticOptions, SyntheticSource};

fn refused(options: SyntheticOptions) -> OptionsError {
    SyntheticChain::new(options).err().expect("these options make no sense")
}

#[test]
fn shares_are_from_zero_to_one() {
    let default = SyntheticOptions::default;
    for bad in [-0.1, 1.1, f64::INFINITY] {
        let error = refused(SyntheticOptions { never: bad, ..default() });
        assert_eq!(error, OptionsError::NotAShare { name: "never", value: bad });
        let error = refused(SyntheticOptions { reorg_probability: bad, ..default() });
        assert_eq!(error, OptionsError::NotAShare { name: "reorg_probability", value: bad });
    }
    let error = refused(SyntheticOptions { children: f64::NAN, ..default() });
    assert!(matches!(error, OptionsError::NotAShare { name: "children", .. }));
    let error = refused(SyntheticOptions { late: 0.5, never: 0.5, double_spends: 0.5, ..default() });
    assert_eq!(error, OptionsError::TooMuch { names: "late, never, double_spends", sum: 1.5 });
    let error = refused(SyntheticOptions { batches: 1.0, big: 0.5, consolidations: 0.0, ..default() });
    assert_eq!(error, OptionsError::TooMuch { names: "consolidations, batches, big", sum: 1.5 });
}

#[test]
fn numbers_have_to_fit_together() {
    let default = SyntheticOptions::default;
    let out_of_range = [
        ("txs_per_block", SyntheticOptions { txs_per_block: 0, ..default() }),
        ("txs_per_block", SyntheticOptions { txs_per_block: u32::MAX, ..default() }),
        ("most_outputs", SyntheticOptions { most_outputs: 10, ..default() }),
        ("addresses", SyntheticOptions { addresses: 0, ..default() }),
        ("delay", SyntheticOptions { delay: 0, ..default() }),
        ("delay", SyntheticOptions { delay: u32::MAX, ..default() }),
        ("late_blocks", SyntheticOptions { late_blocks: (500, 400), ..default() }),
        ("expire_after", SyntheticOptions { expire_after: 400, ..default() }),
        ("max_reorg_depth", SyntheticOptions { max_reorg_depth: 0, ..default() }),
    ];
    for (expected, options) in out_of_range {
        let error = refused(options);
        assert!(
            matches!(error, OptionsError::OutOfRange { name, .. } if name == expected),
            "{expected}: {error}"
        );
        assert!(error.to_string().contains("has to be from"), "{error}");
    }
    let error = refused(SyntheticOptions { unmined_per_block: 51, ..default() });
    assert_eq!(error, OptionsError::NoRoom { unmined: 51, room: 100 });
    let error = refused(SyntheticOptions { max_reorg_depth: 1_001, ..default() });
    assert_eq!(error, OptionsError::TooDeep { depth: 1_001, remember: 1_000 });
}

#[test]
fn a_source_has_to_remember_its_last_block() {
    assert!(SyntheticChain::new(SyntheticOptions::benchmark()).is_ok());
    let error = SyntheticSource::new(SyntheticOptions::benchmark()).err().unwrap();
    assert!(matches!(error, OptionsError::OutOfRange { name: "remember", value: 0, least: 1, .. }));
}

#[test]
fn extreme_options_do_not_overflow() {
    let options = SyntheticOptions {
        txs_per_block: 4,
        unmined_per_block: 2,
        coinbase_maturity: u32::MAX,
        delay: u32::MAX - 1,
        late_blocks: (u32::MAX - 1, u32::MAX - 1),
        expire_after: u32::MAX,
        reorg_probability: 1.0,
        max_reorg_depth: u32::MAX,
        remember: u32::MAX,
        first_outputs: 100,
        ..SyntheticOptions::default()
    };
    crate::synthetic::checked(options, 30, |_, _| {});
}
