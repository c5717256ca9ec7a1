//! A node that runs for a test.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    path::{Path, PathBuf},
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::commands::support::{run, sapwood};

pub(crate) const TOKEN: &str = "admin-token-of-the-tests";
/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until something is true.
pub(crate) fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_true() {
        assert!(started.elapsed() < PATIENCE, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A directory with a configuration to run with.
pub(crate) struct Place {
    directory: TempDir,
}

impl Place {
    /// `settings` are further sections; the addresses are free ones.
    pub(crate) fn new(blocks: &Path, servers: &str, settings: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        let text = format!(
            "[data]\ndirectory = {data:?}\n[source]\nblocks = [{blocks:?}]\n[servers]\nhttp_address = \"127.0.0.1:0\"\n\
             grpc_address = \"127.0.0.1:0\"\nadmin_token = \"{TOKEN}\"\n{servers}\n{settings}\n"
        );
        fs::write(directory.path().join("sapwood.toml"), text).unwrap();
        Self { directory }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn data(&self) -> String {
        self.text("data")
    }

    pub(crate) fn config(&self) -> String {
        self.text("sapwood.toml")
    }

    /// Runs a node, until it has applied the block at `height`.
    pub(crate) fn run(&self, height: u64) -> Running {
        self.run_with(&[], height)
    }

    pub(crate) fn run_with(&self, more: &[&str], height: u64) -> Running {
        let config = self.config();
        let args = [more, &["run", "--config", &config]].concat();
        let mut child = sapwood(&args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        let url = loop {
            let mut line = String::new();
            assert!(log.read_line(&mut line).unwrap() > 0, "the node ended: {said}");
            said += &line;
            if let Some((_, url)) = line.split_once("status page: ") {
                let end = url.find("/\"").or(url.rfind('/')).unwrap();
                break url[..end].to_owned();
            }
        };
        let log = std::thread::spawn(move || {
            // Read on, so that the node does not wait for a reader.
            let _ = log.read_to_string(&mut said);
            said
        });
        let ca = self.path("ca.pem").exists().then(|| self.text("ca.pem"));
        let running = Running { child, url, log: Some(log), ca };
        until("applying the last block", || {
            running.json(&["status"])["chain"]["applied"]["height"].as_u64() == Some(height)
        });
        running
    }
}

/// A node that runs. Stopped when dropped.
pub(crate) struct Running {
    child: Child,
    pub(crate) url: String,
    ca: Option<String>,
    log: Option<std::thread::JoinHandle<String>>,
}

impl Running {
    /// The arguments that name it.
    pub(crate) fn target(&self) -> Vec<&str> {
        let mut target = vec!["--url", &self.url, "--token", TOKEN];
        if let Some(ca) = &self.ca {
            target.extend(["--ca", ca]);
        }
        target
    }

    /// What a command says of it.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let output = run(&[args, &["--json"], &self.target()].concat());
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Stops it by SIGTERM, and returns what it logged.
    pub(crate) fn stop(mut self) -> String {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
        self.log.take().unwrap().join().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
