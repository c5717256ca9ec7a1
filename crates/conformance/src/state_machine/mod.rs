//! Random sequences of every operation, on a store and on the model, compared after each step.
//!
//! # Layers
//! - [`generate`]: makes the steps of a sequence from a seed, looking at the model's state.
//! - [`op`]: one operation, on the model and on a store; [`outcome`]: what came of it.
//! - [`look`], [`observe`]: everything that can be seen of a state, and how two states differ.
//! - [`invariants`]: what must hold of any state, whatever the model says.
//! - [`runner`]: one sequence; [`beside`]: a second store in step with the first; [`shrink`]: makes a failing one short; [`describe`]: says it in few words.
//!
//! # Correctness
//! After each step the answer of the operation is compared whole, errors included. Then all that can be seen: every record that
//! was ever mentioned, its outputs and how they look to a spender, all listings followed through small pages to their
//! end, verdicts with and without their children, counts, marks, undo records. The indexes are compared with the store's
//! own records too, so that a mistake the model shares would still have to be made twice. Every few steps, and at the end,
//! the store verifies itself.
//!
//! A sequence follows from its seed alone. To run one again:
//! `SAPWOOD_SEED=<seed> SAPWOOD_SEQUENCES=1 cargo test --release -p <backend> state_machine`.

pub mod beside;
pub mod describe;
pub mod generate;
pub mod invariants;
pub mod look;
pub mod observe;
pub mod op;
pub mod outcome;
pub mod rng;
pub mod runner;
pub mod shrink;

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use sapwood_rules::Policy;
use tokio::runtime::Runtime;

use self::{
    beside::Beside,
    generate::Generator,
    op::Step,
    outcome::Histogram,
    runner::{Problem, Runner},
};
use crate::StoreFactory;

/// How many sequences run if nobody says otherwise.
pub const DEFAULT_SEQUENCES: u64 = 2000;
/// How many sequences run on two stores by default.
pub const DEFAULT_SEQUENCES_OF_TWO: u64 = 300;
/// How many steps each has if nobody says otherwise.
pub const DEFAULT_STEPS: usize = 60;

/// What came of all sequences.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How many sequences ran to their end.
    pub sequences: u64,
    /// How many steps that were.
    pub steps: u64,
    /// What came of each operation.
    pub histogram: Histogram,
    /// The first sequence that failed.
    pub failure: Option<Failure>,
    /// How long it took.
    pub elapsed: Duration,
}

/// A sequence on which store and model differ.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Its seed.
    pub seed: u64,
    /// The step at which it showed first, counted from 0.
    pub step: usize,
    /// The policy it starts with.
    pub policy: Policy,
    /// What is different, after the shortened sequence.
    pub problem: String,
    /// The shortened sequence.
    pub trace: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {} fails at step {} (counted from 0).", self.seed, self.step)?;
        writeln!(f, "Shortened to {} steps, starting with {:?}:", self.trace.len(), self.policy)?;
        for (number, step) in self.trace.iter().enumerate() {
            writeln!(f, "{number:>3}. {step}")?;
        }
        write!(f, "Then: {}", self.problem)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.histogram)?;
        let (sequences, steps) = (self.sequences, self.steps);
        writeln!(f, "{sequences} sequences, {steps} steps, {:.1} s", self.elapsed.as_secs_f64())?;
        match &self.failure {
            Some(failure) => write!(f, "{failure}"),
            None => write!(f, "store and model agree"),
        }
    }
}

impl Report {
    /// Prints the report, and fails the test if a sequence failed.
    pub fn check(&self) {
        match &self.failure {
            None => println!("{self}"),
            Some(failure) => panic!("{failure}"),
        }
    }
}

fn from_environment(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} must be a number, it is {value:?}")))
}

/// What sequences run on.
struct Subjects<'a> {
    store: &'a dyn StoreFactory,
    /// What is compared with the store.
    beside: Option<&'a dyn StoreFactory>,
}

impl Subjects<'_> {
    async fn runner(&self, policy: Policy) -> Runner {
        let runner = Runner::new(self.store.place(), policy).await;
        match self.beside {
            Some(factory) => runner.beside(Beside::new(factory.place(), policy).await),
            None => runner,
        }
    }
}

/// Runs as many sequences as `SAPWOOD_SEQUENCES` and `SAPWOOD_STEPS` say, from `SAPWOOD_SEED` on.
pub fn run(factory: &dyn StoreFactory) -> Report {
    let sequences = from_environment("SAPWOOD_SEQUENCES").unwrap_or(DEFAULT_SEQUENCES);
    run_from_environment(&Subjects { store: factory, beside: None }, sequences)
}

/// Runs the same sequences on two stores side by side. Answers, errors and all that can be seen are compared with each other after each step, and with
/// the model. The second store is closed and opened again every few steps.
pub fn run_side_by_side(one: &dyn StoreFactory, other: &dyn StoreFactory) -> Report {
    let sequences = from_environment("SAPWOOD_SEQUENCES").unwrap_or(DEFAULT_SEQUENCES_OF_TWO);
    run_from_environment(&Subjects { store: one, beside: Some(other) }, sequences)
}

fn run_from_environment(subjects: &Subjects<'_>, sequences: u64) -> Report {
    let steps = from_environment("SAPWOOD_STEPS").map_or(DEFAULT_STEPS, |steps| steps as usize);
    run_on(subjects, sequences, steps, from_environment("SAPWOOD_SEED").unwrap_or(1))
}

/// Runs sequences of so many steps with the seeds from `first_seed` on, on two threads, up to the first that fails.
pub fn run_sequences(factory: &dyn StoreFactory, sequences: u64, steps: usize, first_seed: u64) -> Report {
    run_on(&Subjects { store: factory, beside: None }, sequences, steps, first_seed)
}

/// Runs sequences of `steps` steps on two stores side by side, as [`run_side_by_side`] does.
pub fn run_sequences_side_by_side(
    one: &dyn StoreFactory,
    other: &dyn StoreFactory,
    sequences: u64,
    steps: usize,
    first_seed: u64,
) -> Report {
    run_on(&Subjects { store: one, beside: Some(other) }, sequences, steps, first_seed)
}

fn run_on(subjects: &Subjects<'_>, sequences: u64, steps: usize, first_seed: u64) -> Report {
    let start = Instant::now();
    let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let total = Mutex::new(Report::default());
    std::thread::scope(|scope| {
        for _ in 0..2.min(sequences) {
            scope.spawn(|| {
                let runtime = runtime();
                let mut own = Report::default();
                while !stop.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= sequences {
                        break;
                    }
                    sequence(subjects, &runtime, first_seed + number, steps, &mut own);
                    stop.fetch_or(own.failure.is_some(), Ordering::Relaxed);
                }
                total.lock().expect("no thread panics").add(own);
            });
        }
    });
    let report = total.into_inner().expect("no thread panicked");
    Report { elapsed: start.elapsed(), ..report }
}

impl Report {
    fn add(&mut self, other: Report) {
        self.sequences += other.sequences;
        self.steps += other.steps;
        self.histogram.add(&other.histogram);
        self.failure = self.failure.take().or(other.failure);
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// A panic in the store is a failure like any other.
fn guarded<T>(work: impl FnOnce() -> Result<T, Problem>) -> Result<T, Problem> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
        Err(Problem { kind: "a panic", text: text.unwrap_or_default() })
    })
}

fn sequence(subjects: &Subjects<'_>, runtime: &Runtime, seed: u64, steps: usize, report: &mut Report) {
    let mut generator = Generator::new(seed);
    let policy = generator.policy();
    let mut runner = runtime.block_on(subjects.runner(policy));
    let mut taken: Vec<Step> = Vec::new();
    let result = guarded(|| {
        for _ in 0..steps {
            taken.push(generator.next(runner.model()));
            runtime.block_on(runner.step(&taken[taken.len() - 1]))?;
        }
        runtime.block_on(runner.verify())
    });
    report.histogram.add(&runner.histogram);
    report.steps += taken.len() as u64;
    drop(runner);
    match result {
        Ok(()) => report.sequences += 1,
        Err(problem) => {
            let step = taken.len().saturating_sub(1);
            report.failure = Some(shortened(subjects, runtime, seed, policy, taken, problem, step));
        }
    }
}

/// Runs given steps on a fresh store.
fn replay(
    subjects: &Subjects<'_>,
    runtime: &Runtime,
    policy: Policy,
    steps: &[Step],
) -> (Option<Problem>, Vec<String>) {
    let mut runner = runtime.block_on(subjects.runner(policy));
    let mut trace = Vec::new();
    let result = guarded(|| {
        for step in steps {
            trace.push(describe::op(&step.plan.resolve(runner.model())));
            runtime.block_on(runner.step(step))?;
        }
        runtime.block_on(runner.verify())
    });
    let problem = result.err();
    let problem = problem.map(|problem| Problem { text: runner.readable(&problem.text), ..problem });
    (problem, trace.iter().map(|line| runner.readable(line)).collect())
}

fn shortened(
    subjects: &Subjects<'_>,
    runtime: &Runtime,
    seed: u64,
    policy: Policy,
    steps: Vec<Step>,
    problem: Problem,
    step: usize,
) -> Failure {
    // A shorter sequence that fails in another way is another story.
    let short = shrink::shrink(steps, |steps| {
        replay(subjects, runtime, policy, steps).0.is_some_and(|found| found.kind == problem.kind)
    });
    let (found, trace) = replay(subjects, runtime, policy, &short);
    let problem = found.unwrap_or(problem);
    Failure { seed, step, policy, problem: format!("{}\n{}", problem.kind, problem.text), trace }
}
