//! A `sapwood run` to look at from outside.

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

/// Long enough for a machine that has other things to do.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// What is promised: what becomes of a source shows on the page within five seconds. The page asks once a second.
const PROMISED: Duration = Duration::from_secs(4);
/// The longest that one look counts. One takes half as long; if it takes longer, the machine is busy with something else.
const ONE_LOOK: Duration = Duration::from_millis(50);

pub(crate) fn sapwood(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sapwood"));
    command.args(args).stdin(Stdio::null()).env_remove("SAPWOOD_DATA").env("RUST_BACKTRACE", "0");
    // A node is asked directly, whatever else goes through a proxy.
    command.env("http_proxy", "http://127.0.0.1:1");
    command
}

/// A running node of regtest.
pub(crate) struct Running {
    child: Child,
    port: u16,
    log: PathBuf,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    /// Runs in a directory, with these lines in its configuration. Measures more often than it does by default.
    pub(crate) fn start(directory: &Path, lines: &str) -> Running {
        Self::start_with(directory, "refresh = \"100ms\"", lines)
    }

    /// The same with these settings of its servers.
    pub(crate) fn start_with(directory: &Path, servers: &str, lines: &str) -> Running {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = directory.join("sapwood.toml");
        let text = format!(
            "[data]\ndirectory = {:?}\n[chain]\nnetwork = \"regtest\"\nutxo_hash = true\n\
             [servers]\ngrpc = false\nhttp_address = \"127.0.0.1:{port}\"\n{servers}\n{lines}",
            directory.join("data")
        );
        fs::write(&config, text).unwrap();
        let log = directory.join("log");
        let file = fs::OpenOptions::new().create(true).append(true).open(&log).unwrap();
        let mut command = sapwood(&["run", "--config", config.to_str().unwrap()]);
        if lines.contains("[bodies]") {
            // An object store may be behind a proxy; here it is not.
            command.env_remove("http_proxy");
        }
        let child = command.stdout(Stdio::null()).stderr(file).spawn().unwrap();
        Running { child, port, log }
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// The status code and body of an answer. `None` if nothing answers.
    pub(crate) fn get(&self, path: &str) -> Option<(u16, String)> {
        let mut connection = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        connection.set_read_timeout(Some(DEADLINE)).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        connection.write_all(request.as_bytes()).ok()?;
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer).ok()?;
        let answer = String::from_utf8(answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let chunked = head.to_lowercase().contains("transfer-encoding: chunked");
        Some((status, if chunked { unchunked(body)? } else { body.to_owned() }))
    }

    pub(crate) fn status(&self) -> Option<Value> {
        serde_json::from_str(&self.get("/api/v1/status")?.1).ok()
    }

    /// Whether it is running.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits until the status is like this, and returns it.
    pub(crate) fn until(&mut self, what: &str, like: impl Fn(&Value) -> bool) -> Value {
        self.wait(what, like).0
    }

    /// The same within the time that is promised, on a machine that has the time.
    pub(crate) fn soon(&mut self, what: &str, like: impl Fn(&Value) -> bool) -> Value {
        let (status, counted) = self.wait(what, like);
        assert!(counted <= PROMISED, "{what}: shown after {counted:?} only\n{}", self.log());
        status
    }

    /// Waits until the status is like this, and returns it with how long that took, as far as the machine had the time.
    fn wait(&mut self, what: &str, like: impl Fn(&Value) -> bool) -> (Value, Duration) {
        let (start, mut counted) = (Instant::now(), Duration::ZERO);
        loop {
            let look = Instant::now();
            let status = self.status();
            if let Some(status) = status.as_ref().filter(|status| like(status)) {
                eprintln!("{what}: after {:.1} s", start.elapsed().as_secs_f64());
                return (status.clone(), counted);
            }
            assert!(self.is_alive(), "{what}: the process has ended:\n{}", self.log());
            if start.elapsed() > DEADLINE {
                let status = status.map(|status| (status["chain"].clone(), status["ready"].clone()));
                panic!("{what}: not within {DEADLINE:?}, but {status:#?}\n{}", self.log());
            }
            std::thread::sleep(ONE_LOOK / 2);
            counted += look.elapsed().min(ONE_LOOK);
        }
    }

    /// A metric's value. `None` if it is not scraped.
    pub(crate) fn metric(&self, name: &str) -> Option<f64> {
        let text = self.get("/metrics").unwrap().1;
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")))?;
        Some(line.parse().unwrap())
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn end(mut self) -> ExitStatus {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.child.wait().unwrap()
    }

    /// Asks it to end. `None` if it has not after so long.
    pub(crate) fn end_within(mut self, patience: Duration) -> Option<ExitStatus> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let start = Instant::now();
        while start.elapsed() < patience {
            if let Some(status) = self.child.try_wait().unwrap() {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    }

    /// Kills it with no chance to do anything about it.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn unchunked(mut body: &str) -> Option<String> {
    let mut text = String::new();
    loop {
        let (length, rest) = body.split_once("\r\n")?;
        let length = usize::from_str_radix(length.trim(), 16).ok()?;
        if length == 0 {
            return Some(text);
        }
        text += rest.get(..length)?;
        body = rest.get(length + 2..)?;
    }
}

/// The names of the alerts of a status.
pub(crate) fn alerts(status: &Value) -> Vec<&str> {
    status["alerts"].as_array().unwrap().iter().map(|alert| alert["name"].as_str().unwrap()).collect()
}

pub(crate) fn is_ready(status: &Value) -> bool {
    status["ready"]["ready"] == true
}

/// Whether it is ready, at this block, with no lag.
pub(crate) fn is_at(hash: &str) -> impl Fn(&Value) -> bool {
    move |status| {
        is_ready(status)
            && status["chain"]["applied"]["hash"] == hash
            && status["chain"]["tip"] == status["chain"]["applied"]
            && status["chain"]["lag_blocks"] == 0
            && status["chain"]["source"]["state"] == "following"
            && status["chain"]["state"] == "running"
    }
}
