//! A crash at every step of every sequence: the process ends, or the power fails and what was not synced is lost, kept
//! or torn.
//!
//! A step is a write, a growth, a sync or a punch of the file, or a commit of the engine, which can end before or after
//! it is done.

use std::{ops::ControlFlow, sync::Arc};

use proptest::{collection::vec, prelude::*};
use sapwood_archive::{
    Archive, ArchiveError, ArchiveOptions, Durability, Punch,
    io::{Fate, Faults, MemoryFile},
};
use sapwood_engine_memory::MemoryEngine;
use sapwood_ledger::engine::{Engine, EngineError, Scan, Table, WriteSet};

use crate::{
    hooked::HookedEngine,
    model::{Model, Op, Size, model_options, op},
    world::World,
};

/// What is on disk and in the engine.
struct Disk {
    file: Arc<MemoryFile>,
    engine: Arc<MemoryEngine>,
}

impl Disk {
    fn new(faults: &Arc<Faults>) -> Self {
        Self { file: Arc::new(MemoryFile::with_faults(Arc::clone(faults))), engine: Arc::default() }
    }

    fn open(&self, faults: &Arc<Faults>, options: &ArchiveOptions) -> Result<Archive, ArchiveError> {
        let step = |faults: Arc<Faults>| {
            move |_: &_| {
                faults.step().map_err(|crashed| EngineError::Failed {
                    doing: "committing",
                    cause: crashed.to_string(),
                })
            }
        };
        let engine = HookedEngine {
            inner: Arc::clone(&self.engine),
            before: Box::new(step(Arc::clone(faults))),
            after: Box::new(step(Arc::clone(faults))),
        };
        Archive::open(Arc::clone(&self.file) as _, Arc::new(engine), options.clone())
    }

    /// What is left after the process ended, or after a power loss that does this to what was not synced.
    fn after(&self, end: End, faults: &Arc<Faults>) -> Disk {
        let faults = Arc::clone(faults);
        let file = match end {
            End::Exit => self.file.after_exit(faults),
            End::Lost => self.file.after_power_loss(faults, |_| Fate::Lost),
            End::Kept => self.file.after_power_loss(faults, |_| Fate::Kept),
            End::Every(second) => {
                let fate = move |number: usize| match number % 3 {
                    rest if rest == second => Fate::Kept,
                    2 => Fate::Torn(100),
                    _ => Fate::Lost,
                };
                self.file.after_power_loss(faults, fate)
            }
        };
        Disk { file: Arc::new(file), engine: Arc::new(copy(&self.engine)) }
    }
}

/// An engine with the same rows, so that what is tried on one does not show on the other.
fn copy(engine: &MemoryEngine) -> MemoryEngine {
    let copy = MemoryEngine::new();
    let position = engine.position().unwrap();
    for number in 1..=position {
        let mut writes = WriteSet::new(number);
        for table in Table::ALL.into_iter().filter(|_| number == position) {
            let put = &mut |key: &[u8], value: &[u8]| {
                writes.put(table, key, value);
                ControlFlow::Continue(())
            };
            engine.view().unwrap().scan(&Scan::all(table), put).unwrap();
        }
        copy.commit(&writes).unwrap();
    }
    copy
}

#[derive(Clone, Copy, Debug)]
enum End {
    Exit,
    Lost,
    Kept,
    Every(usize),
}

/// Ends that a durability promises to survive.
fn ends(durability: Durability) -> &'static [End] {
    match durability {
        Durability::ProcessCrash => &[End::Exit],
        Durability::PowerLoss => &[End::Exit, End::Lost, End::Kept, End::Every(0), End::Every(1)],
    }
}

/// The models before the first operation and after each, from a run without a crash, and how many steps that took.
fn run_to_the_end(ops: &[Op], options: &ArchiveOptions) -> (Vec<Model>, u64) {
    let faults = Arc::new(Faults::default());
    let archive = Disk::new(&faults).open(&faults, options).unwrap();
    let mut models = vec![Model::default()];
    for op in ops {
        let mut model = models.last().unwrap().clone();
        model.step(&archive, op).unwrap();
        models.push(model);
    }
    (models, faults.steps())
}

/// Runs operations until one fails. Returns its number, or how many there are if none failed.
fn run_until_crash(archive: &Archive, ops: &[Op], models: &[Model]) -> usize {
    for (number, op) in ops.iter().enumerate() {
        if let Err(error) = models[number].clone().step(archive, op) {
            assert!(error.to_string().contains("crashed by a test"), "{error}");
            return number;
        }
    }
    ops.len()
}

/// Opens what a crash in operation `failed` left, and fails unless it is as before that operation or as after it, and
/// goes on to the end.
fn check(disk: Disk, options: &ArchiveOptions, ops: &[Op], models: &[Model], failed: usize, context: &str) {
    let world = World::on(disk.file, disk.engine, options.clone())
        .unwrap_or_else(|error| panic!("{context}: {error}"));
    let verify = |when: &str| {
        let report = world.archive.verify(true, |_| ()).unwrap();
        assert!(report.is_clean(), "{context}, {when}: {report}");
    };
    verify("after recovery");
    assert_eq!(world.archive.arena().unwrap().bytes.quarantine, 0, "{context}: recovery frees everything");
    let possible = failed..=(failed + 1).min(ops.len());
    let now = possible.rev().find(|number| models[*number].looks_like(&world.archive));
    let now =
        now.unwrap_or_else(|| panic!("{context}: neither as before {:?} nor as after it", ops.get(failed)));
    models[now].assert_same_archive(&world.archive);
    let mut model = models[now].clone();
    for op in &ops[now..] {
        model.step(&world.archive, op).unwrap_or_else(|error| panic!("{context}, then {op:?}: {error}"));
    }
    model.assert_same_archive(&world.archive);
    assert_eq!(Some(&model), models.last(), "{context}: it ends as without a crash");
    verify("at the end");
}

fn crash_everywhere(ops: &[Op], options: &ArchiveOptions) {
    let (models, steps) = run_to_the_end(ops, options);
    let mut crashes = 0;
    for step in 0..steps {
        let faults = Arc::new(Faults::default());
        let disk = Disk::new(&faults);
        faults.crash_at(step);
        let failed = match disk.open(&faults, options) {
            Ok(archive) => run_until_crash(&archive, ops, &models),
            Err(error) => {
                assert!(error.to_string().contains("crashed by a test"), "{error}");
                0
            }
        };
        for end in ends(options.durability) {
            let context = format!("crash in step {step} of {steps}, {end:?}");
            check(disk.after(*end, &Arc::default()), options, ops, &models, failed, &context);
            // Recovery crashes, too, at each of its steps.
            for again in 0.. {
                let faults = Arc::new(Faults::default());
                let second = disk.after(*end, &faults);
                faults.crash_at(again);
                if second.open(&faults, options).is_ok() {
                    break;
                }
                let context = format!("{context}, and in step {again} of the recovery");
                check(second.after(*end, &Arc::default()), options, ops, &models, failed, &context);
            }
            crashes += 1;
        }
    }
    assert!(crashes > 0);
}

fn sequences() -> u32 {
    std::env::var("SAPWOOD_CRASHES")
        .ok()
        .and_then(|number| number.parse::<u32>().ok())
        .map_or(8, |number| number / 100)
}

fn crashing(durability: Durability, punch: Punch) -> ArchiveOptions {
    ArchiveOptions { durability, punch, ..model_options() }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: sequences(),
        max_shrink_iters: 50,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn crash_at_every_step_of_random_sequences_loses_nothing(ops in vec(op(), 4..12), punches: bool) {
        let punch = if punches { Punch::FreeAbove(0) } else { Punch::Never };
        crash_everywhere(&ops, &crashing(Durability::PowerLoss, punch));
        crash_everywhere(&ops, &crashing(Durability::ProcessCrash, punch));
    }
}

/// Grows, prunes, uses regions again, and replaces blocks: the sequence that touches everything.
#[test]
fn crash_at_every_step_of_the_usual_sequence_loses_nothing() {
    let size = |payloads| Size { txs: 2, payloads };
    let append = |count: usize| Op::Append(vec![size([5000, 3000, 100]); count]);
    let ops = [
        append(3),
        append(4),
        Op::Prune(4, 1000, None),
        append(2),
        Op::Replace(2, vec![size([9000, 40_000, 0]); 3]),
        Op::Policy(true, Some(5), false),
        Op::Tick,
        append(1),
    ];
    crash_everywhere(&ops, &crashing(Durability::PowerLoss, Punch::FreeAbove(20_000)));
    crash_everywhere(&ops, &crashing(Durability::ProcessCrash, Punch::Never));
}

/// If bytes were not synced before the rows, a power loss would show.
#[test]
fn crash_tests_notice_bytes_that_were_not_synced() {
    let options = crashing(Durability::ProcessCrash, Punch::Never);
    let faults = Arc::new(Faults::default());
    let disk = Disk::new(&faults);
    let archive = disk.open(&faults, &options).unwrap();
    let size = Size { txs: 0, payloads: [5000, 0, 0] };
    Model::default().step(&archive, &Op::Append(vec![size])).unwrap();
    assert!(disk.file.unsynced() > 0);
    let lost = disk.after(End::Lost, &Arc::default());
    let world = World::on(lost.file, lost.engine, options).unwrap();
    assert!(!world.archive.verify(true, |_| ()).unwrap().is_clean());
    assert_eq!(disk.engine.position().unwrap(), 2);
}
