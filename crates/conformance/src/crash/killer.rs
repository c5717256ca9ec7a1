//! Kills workers, opens what they leave behind, and holds it against the model.

use std::{
    collections::BTreeMap,
    fmt,
    io::{BufRead, BufReader, Lines},
    os::unix::process::ExitStatusExt,
    process::{Child, ChildStderr, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use crate::state_machine::rng::Rng;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::{
    Durable,
    timeline::{Timeline, Workload},
    worker::{DONE, IN_FLIGHT, OPENING, Orders},
};

/// The named points at which a worker can be made to end itself.
pub const POINTS: [&str; 3] = ["before-write", "after-write", "prune-judged"];
/// The promise is two seconds. A busy machine with a slow disk may need longer now and then, and is not the store's fault.
const REOPEN_AT_MOST: Duration = Duration::from_secs(20);

/// When a worker dies.
#[derive(Clone, Debug)]
enum Kill {
    /// `then` after it said that `done` operations are done.
    Working { done: u64, then: Duration },
    /// This long after it began to open the store: while it recovers from the crash before.
    Opening { then: Duration },
    /// When it reaches this point for the `hit`-th time.
    At { point: &'static str, hit: u64 },
}

impl Kill {
    /// Every kind has its turn. `patience` is about how many operations are left to be done before.
    fn pick(rng: &mut Rng, turn: u64, patience: u64) -> Self {
        let at = |point, most, rng: &mut Rng| Kill::At { point, hit: 1 + rng.below(most) };
        match turn % 10 {
            1 => Kill::Opening { then: about(rng, 15) },
            2 | 6 => at("before-write", patience, rng),
            4 | 8 => at("after-write", patience, rng),
            // Few operations prune.
            9 => at("prune-judged", 1 + patience / 6, rng),
            _ => Kill::Working { done: rng.below(2 * patience), then: about(rng, 12) },
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Kill::Working { .. } => "at any moment",
            Kill::Opening { .. } => "while opening",
            Kill::At { point, .. } => point,
        }
    }
}

/// Up to 2 to the power of `most` microseconds, of every magnitude: a fast machine does in one what takes a slow one ten.
fn about(rng: &mut Rng, most: u32) -> Duration {
    let magnitude = rng.between(2, most);
    Duration::from_micros(rng.below(1 << magnitude))
}

/// What came of many kills.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    kills: BTreeMap<&'static str, u64>,
    operations: u64,
    /// Kills of an operation in flight that is there as a whole.
    in_flight_done: u64,
    /// Opening times after a kill.
    reopened: Vec<Duration>,
    /// Bytes of log a kill left to be replayed, at most.
    most_log: u64,
    /// Acknowledged operations that are lost. Only an engine that does not keep them may lose any.
    lost: u64,
}

impl Tally {
    /// Returns how many workers were killed.
    pub fn kills(&self) -> u64 {
        self.kills.values().sum()
    }

    /// Returns how many acknowledged operations were lost.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns the most bytes of log that a kill left.
    pub fn most_log(&self) -> u64 {
        self.most_log
    }

    /// Every kind of kill has to have happened, and some must have hit an operation in flight: or the loop proves nothing.
    pub fn check(&self) {
        println!("{self}");
        if self.kills() < 20 {
            return;
        }
        for kind in POINTS.iter().chain(&["at any moment", "while opening"]) {
            assert!(self.kills.contains_key(kind), "no worker was killed {kind}");
        }
        let hit = self.in_flight_done > 0 || self.lost > 0;
        assert!(hit, "no kill hit an operation that was written and not acknowledged");
        self.check_reopening();
    }

    /// Reopening has never taken long.
    pub fn check_reopening(&self) {
        let slowest = self.reopened.iter().max().unwrap();
        assert!(*slowest < REOPEN_AT_MOST, "reopening took {slowest:?}");
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut times = self.reopened.clone();
        times.sort_unstable();
        let at = |percent: usize| times.get(times.len().saturating_sub(1) * percent / 100).copied();
        let [median, most] = [at(50), at(100)].map(|time| time.unwrap_or_default());
        writeln!(f, "{} kills: {:?}", self.kills(), self.kills)?;
        writeln!(f, "{} operations acknowledged, {} lost", self.operations, self.lost)?;
        writeln!(f, "{} kills hit an operation that was written and not acknowledged", self.in_flight_done)?;
        write!(
            f,
            "reopening took {median:.1?} typically, {most:.1?} at most; up to {} bytes of log",
            self.most_log
        )
    }
}

/// One store that is killed again and again.
pub struct Life {
    directory: TempDir,
    timeline: Timeline,
    workload: Workload,
    seed: u64,
    engine: Box<dyn Durable>,
    /// How many operations the store has seen.
    at: u64,
    /// About how many operations a worker does before it is killed.
    patience: u64,
    rng: Rng,
    runtime: Runtime,
    /// The ignored test that is a worker.
    worker: &'static str,
}

impl Life {
    /// Begins with an empty directory. `worker` is the path of the ignored test that is a worker.
    pub fn new(workload: Workload, seed: u64, engine: Box<dyn Durable>, worker: &'static str) -> Self {
        // Where acknowledged writes can be lost, there has to be more to lose than fits into the engine's buffers.
        let patience = if engine.keeps_acknowledged() { 10 } else { 60 };
        Life {
            directory: tempfile::tempdir().unwrap(),
            timeline: Timeline::new(workload, seed),
            workload,
            seed,
            engine,
            at: 0,
            patience,
            rng: Rng::new(!seed),
            runtime: tokio::runtime::Builder::new_current_thread().build().unwrap(),
            worker,
        }
    }

    /// The same with workers that do about this many operations before they are killed.
    pub fn with_long_lives(self, patience: u64) -> Self {
        Life { patience, ..self }
    }

    /// Kills workers on this store, one after the other. What is wrong is kept for a closer look.
    pub fn live(mut self, crashes: u64, tally: &mut Tally) {
        for number in 1..=crashes {
            let kill = Kill::pick(&mut self.rng, number, self.patience);
            if let Err(problem) = self.crash(&kill, tally) {
                let before = self.at;
                let Life { directory, workload, seed, engine, .. } = self;
                let settings = engine.settings();
                let kept = directory.keep();
                panic!(
                    "{problem}\n({workload}, seed {seed}, {settings}, crash {number}, {kill:?}, from operation \
                     {before}; the store is kept in {})",
                    kept.display()
                );
            }
        }
    }

    fn crash(&mut self, kill: &Kill, tally: &mut Tally) -> Result<(), String> {
        let end_at = match kill {
            Kill::At { point, hit } => Some(((*point).to_owned(), *hit)),
            _ => None,
        };
        let orders = Orders {
            directory: self.directory.path().to_owned(),
            workload: self.workload,
            seed: self.seed,
            from: self.at,
            settings: self.engine.settings(),
            end_at,
        };
        let mut command = orders.command(self.worker);
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let heard = Watched::new(child, self.at).kill(kill)?;
        let acknowledged = heard.acknowledged;
        tally.most_log = tally.most_log.max(self.engine.log_bytes(self.directory.path()));
        let (digest, took) = self.reopen()?;
        let found = self.find(digest, heard, kill)?;
        *tally.kills.entry(kill.name()).or_default() += 1;
        tally.operations += acknowledged - self.at;
        tally.in_flight_done += u64::from(found > acknowledged);
        tally.lost += acknowledged.saturating_sub(found);
        tally.reopened.push(took);
        self.at = found;
        Ok(())
    }

    /// Opens what is left, has it check itself, and takes its digest.
    fn reopen(&self) -> Result<([u8; 32], Duration), String> {
        let start = Instant::now();
        let store = self.engine.open(self.directory.path(), self.timeline.policy(), None);
        let store = store.map_err(|error| format!("the store does not open: {error}"))?;
        let took = start.elapsed();
        let report = self.runtime.block_on(store.verify(Arc::new(|_, _| {})));
        let report = report.map_err(|error| error.to_string())?;
        if !report.is_clean() {
            return Err(format!("the store is damaged: {report}"));
        }
        let digest = self.runtime.block_on(store.state_digest());
        Ok((digest.map_err(|error| error.to_string())?, took))
    }

    /// The number of operations after which the model looks like the store.
    fn find(&mut self, digest: [u8; 32], heard: Heard, kill: &Kill) -> Result<u64, String> {
        let (last, next) = (heard.acknowledged, heard.in_flight.max(heard.acknowledged + 1));
        let mut allowed: Vec<u64> = match (self.engine.keeps_acknowledged(), kill) {
            // What a clean stop has written before is there whatever happens.
            (false, _) => (self.at..=next).collect(),
            (_, Kill::At { point: "before-write" | "prune-judged", .. }) => (last..next).collect(),
            // The first write of all is not an operation's.
            (_, Kill::At { point: "after-write", .. }) if last > 0 => (last + 1..=next).collect(),
            _ => (last..=next).collect(),
        };
        allowed.reverse();
        match allowed.iter().find(|number| self.timeline.digest_at(**number) == digest) {
            Some(number) => Ok(*number),
            None => {
                let earlier = (0..=next).rev().find(|number| self.timeline.digest_at(*number) == digest);
                Err(format!(
                    "the store looks like the model after none of the operations {allowed:?}, but of {earlier:?}; \
                     acknowledged was {}; in flight was {}",
                    self.timeline.describe(last),
                    self.timeline.describe(next)
                ))
            }
        }
    }
}

/// What a worker said of its operations.
#[derive(Clone, Copy, Debug)]
struct Heard {
    acknowledged: u64,
    /// The last operation it began.
    in_flight: u64,
}

/// A worker that is being listened to.
struct Watched {
    child: Child,
    lines: Lines<BufReader<ChildStderr>>,
    heard: Heard,
    /// Everything else it said, for messages.
    other: Vec<String>,
}

impl Watched {
    fn new(mut child: Child, from: u64) -> Self {
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        Watched { child, lines, heard: Heard { acknowledged: from, in_flight: from }, other: Vec::new() }
    }

    /// Hears one line; nothing once it is dead.
    fn hear(&mut self) -> Option<String> {
        let line = self.lines.next()?.unwrap();
        if let Some(number) = line.strip_prefix(DONE) {
            self.heard.acknowledged = number.parse().unwrap();
        } else if let Some(number) = line.strip_prefix(IN_FLIGHT) {
            self.heard.in_flight = number.parse().unwrap();
        } else if line != OPENING {
            self.other.push(line.clone());
        }
        Some(line)
    }

    /// Kills it, and tells what it has said.
    fn kill(mut self, kill: &Kill) -> Result<Heard, String> {
        let from = self.heard.acknowledged;
        match kill {
            Kill::At { .. } => {}
            Kill::Opening { then } => {
                while self.hear().is_some_and(|line| line != OPENING) {}
                thread::sleep(*then);
                self.child.kill().unwrap();
            }
            Kill::Working { done, then } => {
                while self.heard.acknowledged < from + done && self.hear().is_some() {}
                thread::sleep(*then);
                self.child.kill().unwrap();
            }
        }
        while self.hear().is_some() {}
        let status = self.child.wait().unwrap();
        if status.signal() == Some(9) {
            return Ok(self.heard);
        }
        let (said, last) = (self.other.join("\n"), self.heard.acknowledged);
        Err(format!("the worker ended by itself after operation {last} ({status}):\n{said}"))
    }
}
