//! Something that speaks like a node, serves real blocks, and misbehaves when told to.

use std::{
    collections::{HashMap, VecDeque},
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use sapwood_sources::bitcoin::{Auth, Network, RpcOptions, blk::FileOrder};
use serde_json::{Value, json};

/// user:secret
pub const LOGIN: &str = "Basic dXNlcjpzZWNyZXQ=";

/// What to do with a request instead of answering it.
#[derive(Clone, Debug)]
pub enum Trouble {
    /// Close the connection without a word.
    Drop,
    /// Promise a body and close the connection in the middle of it.
    Cut,
    /// Answer with this status and body.
    Say(u16, String),
    /// Answer, but late.
    Late(Duration),
}

impl Trouble {
    /// The node's own error.
    pub fn error(status: u16, code: i64, message: &str) -> Trouble {
        let error = json!({"result": null, "error": {"code": code, "message": message}, "id": 1});
        Trouble::Say(status, error.to_string())
    }
}

/// What it knows and how it answers. A test may change it at any time.
pub struct State {
    blocks: HashMap<String, Stored>,
    chain: Vec<String>,
    network: Network,
    /// The only `Authorization` header that is let in.
    pub login: String,
    /// What the next requests meet, one each.
    pub troubles: VecDeque<Trouble>,
    /// The height of the best header, if it is another one than the tip's.
    pub headers: Option<u32>,
    /// Blocks below this height are deleted. `None` if it keeps all.
    pub pruned_below: Option<u32>,
    /// What was asked.
    pub asked: Vec<String>,
}

struct Stored {
    bytes: Vec<u8>,
    parent: String,
    time: u32,
    height: u32,
}

/// What runs while the node does.
struct Running {
    stop: Arc<AtomicBool>,
    listening: JoinHandle<()>,
    connections: Arc<Mutex<Vec<TcpStream>>>,
}

/// Something that speaks like a node, on an address of its own.
pub struct FakeNode {
    /// What it knows.
    pub state: Arc<Mutex<State>>,
    /// Where it listens.
    pub url: String,
    address: SocketAddr,
    running: Mutex<Option<Running>>,
}

impl Drop for FakeNode {
    fn drop(&mut self) {
        self.stop();
    }
}

impl FakeNode {
    /// A node of mainnet that knows the blocks of a file and holds the one with this hash for the best.
    pub fn new(file: &[u8], tip: &str) -> FakeNode {
        Self::of(Network::Mainnet, file, tip)
    }

    /// The same of any network.
    pub fn of(network: Network, file: &[u8], tip: &str) -> FakeNode {
        let state = State {
            blocks: HashMap::new(),
            chain: Vec::new(),
            network,
            login: LOGIN.to_owned(),
            troubles: VecDeque::new(),
            headers: None,
            pruned_below: None,
            asked: Vec::new(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let url = format!("http://{address}");
        let node = FakeNode { state: Arc::new(Mutex::new(state)), url, address, running: Mutex::new(None) };
        node.learn(file);
        node.go_to(tip);
        node.listen(listener);
        node
    }

    /// Learns the blocks of a file. Parents come before children.
    pub fn learn(&self, file: &[u8]) {
        let mut state = self.state.lock().unwrap();
        let place = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(place.path(), file).unwrap();
        for raw in FileOrder::open(state.network, &[place.path().to_owned()]).unwrap() {
            let raw = raw.unwrap();
            let parent = raw.parent().to_string();
            let height = state.blocks.get(&parent).map_or(0, |parent| parent.height + 1);
            let stored = Stored { parent, time: raw.header.time, height, bytes: raw.bytes.clone() };
            state.blocks.insert(raw.hash().to_string(), stored);
        }
    }

    /// Ends the node: nothing listens any more, and connections are closed.
    pub fn stop(&self) {
        let Some(running) = self.running.lock().unwrap().take() else { return };
        running.stop.store(true, Ordering::SeqCst);
        running.listening.join().unwrap();
        for connection in running.connections.lock().unwrap().drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    /// Starts the node again at the same address.
    pub fn start(&self) {
        let end = Instant::now() + Duration::from_secs(60);
        let listener = loop {
            match TcpListener::bind(self.address) {
                Ok(listener) => break listener,
                Err(error) => assert!(Instant::now() < end, "{}: {error}", self.address),
            }
            thread::sleep(Duration::from_millis(20));
        };
        self.listen(listener);
    }

    fn listen(&self, listener: TcpListener) {
        listener.set_nonblocking(true).unwrap();
        let (stop, connections) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (state, ended, open) = (self.state.clone(), stop.clone(), connections.clone());
        let listening = thread::spawn(move || {
            while !ended.load(Ordering::SeqCst) {
                let Ok((connection, _)) = listener.accept() else {
                    thread::sleep(Duration::from_millis(2));
                    continue;
                };
                connection.set_nonblocking(false).unwrap();
                let (known, end) = (connection.try_clone().unwrap(), connection.try_clone().unwrap());
                open.lock().unwrap().push(known);
                let state = state.clone();
                thread::spawn(move || {
                    serve(connection, &state);
                    // The copies keep the socket open: the client has to hear of the end.
                    let _ = end.shutdown(Shutdown::Both);
                });
            }
        });
        *self.running.lock().unwrap() = Some(Running { stop, listening, connections });
    }

    /// How many connections were opened since it was started.
    pub fn connections(&self) -> usize {
        self.running.lock().unwrap().as_ref().map_or(0, |running| running.connections.lock().unwrap().len())
    }

    /// Makes another block the tip.
    pub fn go_to(&self, tip: &str) {
        let mut state = self.state.lock().unwrap();
        let mut chain = Vec::new();
        let mut at = tip.to_owned();
        while let Some(block) = state.blocks.get(&at) {
            chain.push(at.clone());
            at = block.parent.clone();
        }
        assert!(!chain.is_empty(), "{tip} is not known");
        chain.reverse();
        state.chain = chain;
    }

    /// The next requests meet these troubles, one each.
    pub fn trouble(&self, troubles: impl IntoIterator<Item = Trouble>) {
        self.state.lock().unwrap().troubles.extend(troubles);
    }

    /// How to ask it.
    pub fn options(&self) -> RpcOptions {
        let auth = Auth::Password { user: "user".to_owned(), password: "secret".to_owned() };
        let network = self.state.lock().unwrap().network;
        RpcOptions::new(network, self.url.clone(), auth)
    }
}

fn serve(connection: TcpStream, state: &Mutex<State>) {
    let _ = connection.set_nodelay(true);
    let mut to = connection.try_clone().unwrap();
    let mut from = BufReader::new(connection);
    while let Some((login, body)) = request(&mut from) {
        let trouble = state.lock().unwrap().troubles.pop_front();
        let (status, text) = match trouble {
            Some(Trouble::Drop) => return,
            Some(Trouble::Cut) => {
                let _ = to.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{\"result\": ");
                return;
            }
            Some(Trouble::Say(status, text)) => (status, text),
            Some(Trouble::Late(by)) => {
                thread::sleep(by);
                answer(state, &login, &body)
            }
            None => answer(state, &login, &body),
        };
        let head = format!(
            "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            text.len()
        );
        if to.write_all(&[head.as_bytes(), text.as_bytes()].concat()).is_err() {
            return;
        }
    }
}

/// Who asks, and the body of the question.
fn request(from: &mut BufReader<TcpStream>) -> Option<(String, Vec<u8>)> {
    let (mut login, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if from.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(": ") {
            match name.to_lowercase().as_str() {
                "authorization" => login = value.to_owned(),
                "content-length" => length = value.parse().unwrap(),
                _ => {}
            }
        }
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body).ok()?;
    Some((login, body))
}

fn answer(state: &Mutex<State>, login: &str, body: &[u8]) -> (u16, String) {
    if state.lock().unwrap().login != login {
        return (401, String::new());
    }
    let question: Value = serde_json::from_slice(body).unwrap();
    let method = question["method"].as_str().unwrap();
    state.lock().unwrap().asked.push(method.to_owned());
    let result = call(state, method, &question["params"]);
    let id = &question["id"];
    match result {
        Ok(result) => (200, json!({"result": result, "error": null, "id": id}).to_string()),
        Err((code, message)) => {
            let error = json!({"result": null, "error": {"code": code, "message": message}, "id": id});
            (500, error.to_string())
        }
    }
}

fn call(state: &Mutex<State>, method: &str, params: &Value) -> Result<Value, (i64, &'static str)> {
    let state = state.lock().unwrap();
    let tip = state.chain.len() - 1;
    let stored = || params[0].as_str().and_then(|hash| state.blocks.get(hash)).ok_or((-5, "Block not found"));
    match method {
        "getblockchaininfo" => Ok(json!({
            "chain": if state.network == Network::Mainnet { "main" } else { "regtest" },
            "blocks": tip, "headers": state.headers.unwrap_or(tip as u32), "bestblockhash": state.chain[tip],
            "initialblockdownload": true, "verificationprogress": 0.25,
            "pruned": state.pruned_below.is_some(), "pruneheight": state.pruned_below,
        })),
        "getbestblockhash" => Ok(json!(state.chain[tip])),
        "getblockhash" => {
            let height = params[0].as_u64().unwrap() as usize;
            state.chain.get(height).map(|hash| json!(hash)).ok_or((-8, "Block height out of range"))
        }
        "getblockheader" => {
            let block = stored()?;
            let active = state.chain.get(block.height as usize).map(String::as_str) == params[0].as_str();
            let mut info = json!({
                "hash": params[0], "height": block.height, "time": block.time,
                "confirmations": if active { 1 + tip as i64 - i64::from(block.height) } else { -1 },
            });
            if block.height > 0 {
                info["previousblockhash"] = json!(block.parent);
            }
            Ok(info)
        }
        "getblock" => {
            let block = stored()?;
            if state.pruned_below.is_some_and(|below| block.height < below) {
                return Err((-1, "Block not available (pruned data)"));
            }
            assert_eq!(params[1], 0);
            Ok(json!(block.bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()))
        }
        other => panic!("{other} is not a call this program makes"),
    }
}
