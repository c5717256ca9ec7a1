//! Operations in few words, for the trace of a failing sequence.

use sapwood_ledger::{ApplyOptions, PruneWhat};
use sapwood_types::{Block, Output, Tx};

use super::op::Op;

/// An operation in one line.
pub fn op(op: &Op) -> String {
    match op {
        Op::Create { batch, height } => {
            let items = batch.iter().map(|it| {
                let marks = [
                    (it.conflicting, "conflicting"),
                    (it.locked, "locked"),
                    (it.frozen, "frozen"),
                    (it.trust_inputs, "trusted"),
                ];
                let marks: String =
                    marks.iter().filter(|(on, _)| *on).map(|(_, mark)| format!(" {mark}")).collect();
                let mined = it.mined_in.map_or(String::new(), |block| format!(" mined in {block:?}"));
                format!("{}{marks}{mined}", tx(&it.tx))
            });
            format!("create at {height}: {}", items.collect::<Vec<_>>().join("; "))
        }
        Op::Spend { batch, height } => {
            let items = batch.iter().map(|it| {
                let inputs: Vec<String> = it
                    .inputs
                    .iter()
                    .map(|input| format!("{} as input {}", input.outpoint, input.vin))
                    .collect();
                let hashed = it.inputs.iter().filter(|input| input.expected.is_some()).count();
                format!(
                    "{} spends {} ({hashed} hashes given, {:?})",
                    it.child,
                    inputs.join(", "),
                    it.overrides
                )
            });
            format!("spend at {height}: {}", items.collect::<Vec<_>>().join("; "))
        }
        Op::Unspend { batch } => {
            let items = batch.iter().map(|it| format!("{} by {}", it.outpoint, it.spender));
            format!("unspend {}", items.collect::<Vec<_>>().join(", "))
        }
        Op::ApplyBlock { block, options } => format!("apply {}", described(block, options)),
        Op::ApplyBlocks { blocks } => {
            let blocks: Vec<String> =
                blocks.iter().map(|(block, options)| described(block, options)).collect();
            format!("apply in a row {}", blocks.join(" / "))
        }
        Op::Prune { request } => {
            let context = &request.context;
            let (current, retention, safe) = (context.current, context.retention, context.safe);
            let how = if request.check_children { "with" } else { "without" };
            let what = match &request.what {
                PruneWhat::Records { txids, cursor } => {
                    let txids: Vec<String> = txids.iter().map(ToString::to_string).collect();
                    format!("{}, then {cursor:?}", txids.join(", "))
                }
                settled => format!("{settled:?}"),
            };
            let (spare, dry) = (request.spare_external, request.dry_run);
            format!(
                "prune at {current}, retention {retention}, safe {safe:?}, {how} children, spare {spare}, dry run {dry}: {what}"
            )
        }
        other => format!("{other:?}"),
    }
}

fn described(block: &Block, options: &ApplyOptions) -> String {
    let txs: Vec<String> = block.txs.iter().map(tx).collect();
    let (height, hash, parent) = (block.height, block.hash, block.parent);
    format!("block {hash} at {height} on {parent}, {options:?}: {}", txs.join("; "))
}

fn tx(tx: &Tx) -> String {
    let inputs: Vec<String> = tx.inputs.iter().map(|input| input.outpoint.to_string()).collect();
    let shown = |output: &Output| {
        let owner = String::from_utf8_lossy(&output.script).into_owned();
        if output.spendable { format!("{owner}'s {}", output.value) } else { "data".into() }
    };
    let mut outputs: Vec<String> = Vec::new();
    for (vout, output) in tx.outputs.iter().enumerate() {
        // Of a huge transaction only what can be spent.
        if tx.outputs.len() < 16 || output.spendable {
            outputs.push(format!("{vout}: {}", shown(output)));
        }
    }
    let kind = if tx.coinbase { "coinbase" } else { "tx" };
    format!("{kind} {} [{}] -> [{}]", tx.txid, inputs.join(", "), outputs.join(", "))
}
