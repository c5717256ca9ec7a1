//! Nodes that are stopped, started, and told which chain to hold for the best: a recorded one, and a real one.

use std::{
    ffi::OsString,
    fs,
    net::TcpListener,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use bitcoin::{Address, Block, ScriptBuf};
use sapwood_sources::bitcoin::{
    Auth, Network, RpcOptions,
    rpc::{RpcClient, RpcError},
};
use sapwood_testing::{
    fake_node::FakeNode,
    regtest::{file, hash, longer},
};
use serde_json::{Value, json};

use crate::following::process::DEADLINE;

/// A node of regtest whose user is `user` and whose password is `secret`.
pub(crate) trait Acting {
    fn url(&self) -> String;

    fn stop(&mut self);

    /// Starts it again. It answers when this returns.
    fn start(&mut self);

    /// Mines blocks on its tip, which no other call mines, and returns the last one.
    fn mine(&mut self, blocks: usize) -> String;

    /// Declares the block at a height of its chain invalid, and returns the one below, which is then its tip.
    fn invalidate(&mut self, height: usize) -> String;

    /// Goes back to the chain it had before it was told that a block is invalid, and returns its tip.
    fn reconsider(&mut self) -> String;
}

/// Answers as a node does, from blocks made here.
pub(crate) struct Recorded {
    node: FakeNode,
    chain: Vec<Block>,
    before: Vec<Block>,
    mined: usize,
}

impl Recorded {
    pub(crate) fn new() -> Self {
        let chain = longer(&[], "", 1);
        let node = FakeNode::of(Network::Regtest, &file(&chain), &hash(&chain[0]));
        Self { node, chain, before: Vec::new(), mined: 0 }
    }

    fn show(&self) -> String {
        let tip = hash(self.chain.last().unwrap());
        self.node.learn(&file(&self.chain));
        self.node.go_to(&tip);
        tip
    }
}

impl Acting for Recorded {
    fn url(&self) -> String {
        self.node.url.clone()
    }

    fn stop(&mut self) {
        self.node.stop();
    }

    fn start(&mut self) {
        self.node.start();
    }

    fn mine(&mut self, blocks: usize) -> String {
        self.mined += 1;
        self.chain = longer(&self.chain, &format!("branch {}", self.mined), blocks);
        self.show()
    }

    fn invalidate(&mut self, height: usize) -> String {
        self.before = self.chain.clone();
        self.chain.truncate(height);
        self.show()
    }

    fn reconsider(&mut self) -> String {
        self.chain = self.before.clone();
        self.show()
    }
}

/// A real node, where the environment names one: `SAPWOOD_BITCOIND=/path/to/bitcoind`.
pub(crate) struct Bitcoind {
    program: OsString,
    directory: tempfile::TempDir,
    port: u16,
    process: Option<Child>,
    rpc: RpcClient,
    runtime: tokio::runtime::Runtime,
    invalid: Option<(usize, String)>,
    mined: u8,
}

impl Bitcoind {
    /// `None` if the environment names none.
    pub(crate) fn new() -> Option<Self> {
        let program = std::env::var_os("SAPWOOD_BITCOIND").filter(|program| !program.is_empty())?;
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let auth = Auth::Password { user: "user".to_owned(), password: "secret".to_owned() };
        let options = RpcOptions::new(Network::Regtest, format!("http://127.0.0.1:{port}"), auth);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let rpc = RpcClient::new(RpcOptions { attempts: 1, ..options }).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let mut node =
            Self { program, directory, port, process: None, rpc, runtime, invalid: None, mined: 0 };
        node.start();
        Some(node)
    }

    fn try_call(&self, method: &'static str, params: &[Value]) -> Result<Value, RpcError> {
        self.runtime.block_on(self.rpc.call(method, params))
    }

    fn call(&self, method: &'static str, params: &[Value]) -> Value {
        self.try_call(method, params).unwrap()
    }

    fn tip(&self) -> String {
        self.call("getbestblockhash", &[]).as_str().unwrap().to_owned()
    }

    fn hash_at(&self, height: usize) -> Value {
        self.call("getblockhash", &[json!(height)])
    }
}

impl Acting for Bitcoind {
    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn stop(&mut self) {
        let mut process = self.process.take().unwrap();
        let pid = rustix::process::Pid::from_child(&process);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        process.wait().unwrap();
    }

    fn start(&mut self) {
        let log = fs::File::create(self.directory.path().join("log")).unwrap();
        let process = Command::new(&self.program)
            .args(["-regtest", "-server", "-listen=0", "-connect=0", "-rpcuser=user", "-rpcpassword=secret"])
            .arg(format!("-datadir={}", self.directory.path().display()))
            .arg(format!("-rpcport={}", self.port))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.process = Some(process);
        let started = Instant::now();
        while let Err(error) = self.try_call("getblockcount", &[]) {
            let ended = self.process.as_mut().unwrap().try_wait().unwrap();
            let log = || fs::read_to_string(self.directory.path().join("log")).unwrap();
            assert!(ended.is_none() && started.elapsed() < DEADLINE, "{error}: {}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn mine(&mut self, blocks: usize) -> String {
        self.mined += 1;
        // To another address each time, so that a block is not one that was declared invalid.
        let script = ScriptBuf::from_bytes(vec![1, self.mined]);
        let address = Address::p2wsh(&script, bitcoin::Network::Regtest).to_string();
        self.call("generatetoaddress", &[json!(blocks), json!(address)]);
        self.tip()
    }

    fn invalidate(&mut self, height: usize) -> String {
        let block = self.hash_at(height);
        self.call("invalidateblock", std::slice::from_ref(&block));
        self.invalid = Some((height, block.as_str().unwrap().to_owned()));
        self.tip()
    }

    fn reconsider(&mut self) -> String {
        let (height, block) = self.invalid.take().unwrap();
        // What was mined instead may have more work.
        if self.call("getblockcount", &[]).as_u64() >= Some(height as u64) {
            self.call("invalidateblock", &[self.hash_at(height)]);
        }
        self.call("reconsiderblock", &[json!(block)]);
        self.tip()
    }
}

impl Drop for Bitcoind {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
