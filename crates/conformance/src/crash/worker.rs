//! The process that is killed: opens a store, goes on with its timeline, and says after each operation that it is done.
//!
//! It is this test binary started again. It tells what it has done over its standard error, one short line a write, so that
//! what was said before the kill is heard after it.

use std::{
    io::Write,
    path::PathBuf,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use crate::state_machine::{op::Op, outcome::Outcome};
use rustix::process::{Signal, getpid, kill_process};
use sapwood_ledger::Faults;

use super::{
    Durable,
    timeline::{Timeline, Workload},
};

const DIRECTORY: &str = "SAPWOOD_WORKER_DIRECTORY";
const ORDERS: &str = "SAPWOOD_WORKER_ORDERS";
/// What it says before it opens the store.
pub const OPENING: &str = "opening";
/// What it says before an operation, with its number; of several in a row that of the last.
pub const IN_FLIGHT: &str = "in flight ";
/// What it says after an operation, with its number.
pub const DONE: &str = "done ";
/// How many blocks are applied in a row at most.
const LONGEST_ROW: usize = 4;
/// Longer than any worker is left alive. One that outlives this hangs, and must not hang the tests with it.
const LIFETIME: Duration = Duration::from_secs(120);

/// What a worker is told.
#[derive(Clone, Debug)]
pub struct Orders {
    /// Where the ledger is.
    pub directory: PathBuf,
    /// What it works on.
    pub workload: Workload,
    /// The seed of the workload.
    pub seed: u64,
    /// How many operations the store has seen already.
    pub from: u64,
    /// The settings of the engine.
    pub settings: String,
    /// Where to end itself: the point, and at which time of reaching it.
    pub end_at: Option<(String, u64)>,
}

impl Orders {
    /// The command that starts a worker with these orders, by way of the ignored test of this name.
    pub fn command(&self, test: &str) -> Command {
        let Orders { workload, seed, from, settings, .. } = self;
        let (point, hit) = self.end_at.clone().unwrap_or(("nowhere".into(), 0));
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([test, "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
        command.env(DIRECTORY, &self.directory);
        command.env(ORDERS, format!("{workload} {seed} {from} {point} {hit} {settings}"));
        command
    }

    fn from_environment() -> Option<Self> {
        let directory = std::env::var_os(DIRECTORY)?.into();
        let orders = std::env::var(ORDERS).ok()?;
        let mut words = orders.splitn(6, ' ');
        let mut word = || words.next().unwrap();
        let workload = word().parse().unwrap();
        let (seed, from) = (word().parse().unwrap(), word().parse().unwrap());
        let end_at = Some((word().to_owned(), word().parse().unwrap()));
        let settings = word().to_owned();
        Some(Orders { directory, workload, seed, from, settings, end_at })
    }
}

/// Ends the process at a named point, just as the killer would.
struct EndAt {
    point: String,
    left: AtomicU64,
}

impl Faults for EndAt {
    fn reached(&self, point: &'static str) -> Result<(), String> {
        if point == self.point && self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            kill_process(getpid(), Signal::KILL).unwrap();
            // The signal need not be delivered before the call returns.
            thread::sleep(LIFETIME);
        }
        Ok(())
    }
}

fn say(line: &str) {
    // Fails once the killer has ended, and that is the end of a worker too.
    std::io::stderr().write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// Does as it is told, until it is killed. Returns at once if this process is not a worker.
///
/// `engine` makes an engine of its settings, as [`Durable::settings`] wrote them.
pub fn work(engine: impl FnOnce(&str) -> Box<dyn Durable>) {
    let Some(orders) = Orders::from_environment() else {
        println!("not a worker: nothing to do");
        return;
    };
    thread::spawn(|| {
        thread::sleep(LIFETIME);
        std::process::exit(3);
    });
    let mut timeline = Timeline::new(orders.workload, orders.seed);
    timeline.go_to(orders.from);
    let faults = orders
        .end_at
        .map(|(point, hit)| -> Arc<dyn Faults> { Arc::new(EndAt { point, left: AtomicU64::new(hit) }) });
    let engine = engine(&orders.settings);
    say(OPENING);
    let store = engine.open(&orders.directory, timeline.policy(), faults).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut next = None;
    loop {
        let (op, expected, number) = next.take().unwrap_or_else(|| step(&mut timeline));
        let mut row = vec![op];
        let mut last = (expected.is_ok(), number);
        // Blocks that follow one another are applied in a row, up to the first that will be refused.
        while last.0 && row.len() < LONGEST_ROW && matches!(row[0], Op::ApplyBlock { .. }) {
            let (op, expected, number) = step(&mut timeline);
            if !matches!(op, Op::ApplyBlock { .. }) {
                next = Some((op, expected, number));
                break;
            }
            last = (expected.is_ok(), number);
            row.push(op);
        }
        say(&format!("{IN_FLIGHT}{}", last.1));
        let op = in_a_row(row);
        let outcome = runtime.block_on(op.on_store(&store));
        // Whether the answers are the same in every detail is the state machine's question.
        assert_eq!(outcome.is_ok(), last.0, "{}: {op:?}\ngot {outcome:?}", last.1);
        say(&format!("{DONE}{}", last.1));
    }
}

fn step(timeline: &mut Timeline) -> (Op, Outcome, u64) {
    let (op, expected) = timeline.step();
    (op, expected, timeline.at())
}

/// One operation for several blocks.
fn in_a_row(mut ops: Vec<Op>) -> Op {
    if ops.len() == 1 {
        return ops.remove(0);
    }
    let block = |op| match op {
        Op::ApplyBlock { block, options } => (block, options),
        op => panic!("{op:?} is not a block"),
    };
    Op::ApplyBlocks { blocks: ops.into_iter().map(block).collect() }
}
