//! Random operations on the archive and on the model, with readers that stay, and the archive opened again in between.

use proptest::{collection::vec, prelude::*};
use sapwood_archive::ArchiveView;

use crate::{
    model::{Model, Op, model_options, op},
    world::World,
};

#[derive(Clone, Debug)]
enum Action {
    Do(Op),
    /// A reader begins, and stays.
    Read,
    /// The reader that began this far back leaves.
    Leave(usize),
    Reopen,
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        12 => op().prop_map(Action::Do),
        2 => Just(Action::Read),
        2 => any::<usize>().prop_map(Action::Leave),
        1 => Just(Action::Reopen),
    ]
}

fn sequences() -> u32 {
    std::env::var("SAPWOOD_SEQUENCES").ok().and_then(|number| number.parse().ok()).unwrap_or(96)
}

/// Runs actions until one asks for the archive to be opened again. Returns how many were run.
fn run(world: &World, model: &mut Model, actions: &[Action]) -> usize {
    let mut readers: Vec<(ArchiveView<'_>, Model)> = Vec::new();
    let mut done = 0;
    for action in actions {
        done += 1;
        match action {
            Action::Do(op) => {
                model.step(&world.archive, op).unwrap();
                model.assert_same_archive(&world.archive);
            }
            Action::Read => readers.push((world.archive.view().unwrap(), model.clone())),
            Action::Leave(which) if !readers.is_empty() => {
                let (view, then) = readers.swap_remove(which % readers.len());
                then.assert_same(&view);
            }
            Action::Leave(_) => {}
            Action::Reopen => break,
        }
    }
    for (view, then) in &readers {
        then.assert_same(view);
    }
    done
}

proptest! {
    #![proptest_config(ProptestConfig { cases: sequences(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn state_machine_agrees_with_the_model(actions in vec(action(), 1..60), chunk in 1_u32..30_000) {
        let mut world = World::new(model_options());
        let mut model = Model::default();
        let mut actions = &actions[..];
        while !actions.is_empty() {
            let done = run(&world, &mut model, actions);
            actions = &actions[done..];
            world.verify();
            let report = world.archive.status(0).unwrap();
            prop_assert_eq!(report.trouble.stale_pointers, 0);
            world = world.reopen(model_options());
            model.assert_same_archive(&world.archive);
            world.verify();
            prop_assert_eq!(world.archive.arena().unwrap().bytes.quarantine, 0, "recovery frees everything");
        }
        model.assert_exports(&world.archive, chunk);
    }
}
