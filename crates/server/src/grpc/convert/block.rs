//! Blocks as they come in, and what happens to the chain as it goes out.

use sapwood_chain::{ChainState, Event, Latest, TimingSummary, events};
use sapwood_ledger::{Applied, ApplyOptions, RolledBack};
use sapwood_sources::ChainPoint;
use sapwood_types::{Block, BlockRules};

use super::{bytes, known, txids};
use crate::grpc::{
    field::{BadField, Checked, InField, each, hash, height},
    proto::{self, chain_event},
};

impl proto::Block {
    pub(crate) fn read(self) -> Checked<(Block, ApplyOptions)> {
        let proto::Block { time, allow_overwrite, subsidy, block_id, .. } = self;
        let block = Block {
            height: height(self.height, "height")?,
            hash: hash(&self.hash).field("hash")?,
            parent: hash(&self.parent).field("parent")?,
            time,
            txs: each(self.transactions, "transactions", proto::Transaction::read)?,
        };
        let rules = BlockRules { allow_overwrite, subsidy, ..BlockRules::default() };
        Ok((block, ApplyOptions { rules, block_id, bodies_above: None }))
    }
}

impl From<(&Block, ApplyOptions)> for proto::Block {
    fn from((block, options): (&Block, ApplyOptions)) -> Self {
        let ApplyOptions { rules: BlockRules { allow_overwrite, subsidy, .. }, block_id, .. } = options;
        Self {
            height: Some(block.height.0),
            hash: bytes(block.hash.0),
            parent: bytes(block.parent.0),
            time: block.time,
            transactions: block.txs.iter().map(Into::into).collect(),
            allow_overwrite,
            subsidy,
            block_id,
        }
    }
}

impl proto::ChainPoint {
    pub(crate) fn read(self) -> Checked<ChainPoint> {
        Ok(ChainPoint { height: height(self.height, "height")?, hash: hash(&self.hash).field("hash")? })
    }
}

impl From<ChainPoint> for proto::ChainPoint {
    fn from(point: ChainPoint) -> Self {
        Self { height: Some(point.height.0), hash: bytes(point.hash.0) }
    }
}

impl proto::ChainState {
    pub(crate) fn read(self) -> Checked<ChainState> {
        Ok(match self {
            proto::ChainState::Unspecified => return Err(BadField::new("is required")),
            proto::ChainState::Resetting => ChainState::Resetting,
            proto::ChainState::CatchingUp => ChainState::CatchingUp,
            proto::ChainState::Running => ChainState::Running,
            proto::ChainState::Reorganising => ChainState::Reorganising,
            proto::ChainState::Stalled => ChainState::Stalled,
            proto::ChainState::Stopped => ChainState::Stopped,
        })
    }
}

impl From<ChainState> for proto::ChainState {
    fn from(state: ChainState) -> Self {
        match state {
            ChainState::Resetting => proto::ChainState::Resetting,
            ChainState::CatchingUp => proto::ChainState::CatchingUp,
            ChainState::Running => proto::ChainState::Running,
            ChainState::Reorganising => proto::ChainState::Reorganising,
            ChainState::Stalled => proto::ChainState::Stalled,
            // Offline there is no gRPC to say so.
            ChainState::Stopped | ChainState::Offline => proto::ChainState::Stopped,
        }
    }
}

/// The block of `height` was applied, or queued.
pub(crate) fn applied(height: u32, applied: Option<Applied>) -> proto::AppliedBlock {
    match applied {
        None => proto::AppliedBlock { height, ..Default::default() },
        Some(Applied { block, created, mined, conflicting }) => proto::AppliedBlock {
            height,
            block: Some(block.into()),
            created: created as u64,
            mined: mined as u64,
            conflicting: txids(&conflicting),
        },
    }
}

impl From<RolledBack> for proto::RollBackResponse {
    fn from(rolled_back: RolledBack) -> Self {
        Self {
            applied: rolled_back.last.map(Into::into),
            blocks: rolled_back.blocks,
            unmined: txids(&rolled_back.unmined),
            forgotten: txids(&rolled_back.forgotten),
            conflicting: txids(&rolled_back.conflicting),
        }
    }
}

impl From<TimingSummary> for proto::Timing {
    fn from(timing: TimingSummary) -> Self {
        let TimingSummary { count, total_seconds, last_ms, p50_ms, p99_ms } = timing;
        Self { count, total_seconds, last_ms, p50_ms, p99_ms }
    }
}

impl From<&events::BlockApplied> for proto::BlockApplied {
    fn from(event: &events::BlockApplied) -> Self {
        let (block, conflicting) = (Some(event.block.into()), txids(&event.conflicting));
        Self { block, transactions: event.transactions as u64, conflicting }
    }
}

impl From<&events::BlocksRolledBack> for proto::RolledBack {
    fn from(event: &events::BlocksRolledBack) -> Self {
        Self { from: Some(event.from.into()), to: event.to.map(Into::into), blocks: event.blocks }
    }
}

impl From<events::ReorgStarted> for proto::ReorgStarted {
    fn from(event: events::ReorgStarted) -> Self {
        Self { from: Some(event.from.into()), fork: known(event.fork), depth: event.depth }
    }
}

impl From<events::ReorgFinished> for proto::ReorgFinished {
    fn from(event: events::ReorgFinished) -> Self {
        Self { to: event.to.map(Into::into), adopted: event.adopted }
    }
}

impl From<Latest> for proto::LatestEvents {
    fn from(latest: Latest) -> Self {
        Self {
            block_applied: latest.block_applied.as_ref().map(Into::into),
            rolled_back: latest.rolled_back.as_ref().map(Into::into),
            reorg_started: latest.reorg_started.map(Into::into),
            reorg_finished: latest.reorg_finished.map(Into::into),
            mined_set: latest.mined_set.map(Into::into),
            block_persisted: latest.block_persisted.map(|event| event.height.0),
            state: proto::ChainState::from(latest.state).into(),
        }
    }
}

impl From<&Event> for chain_event::Event {
    fn from(event: &Event) -> Self {
        match event {
            Event::BlockApplied(event) => Self::BlockApplied(event.into()),
            Event::RolledBack(event) => Self::RolledBack(event.into()),
            Event::ReorgStarted(event) => Self::ReorgStarted((*event).into()),
            Event::ReorgFinished(event) => Self::ReorgFinished((*event).into()),
            Event::MinedSet(block) => Self::MinedSet((*block).into()),
            Event::BlockPersisted(event) => {
                Self::BlockPersisted(proto::BlockPersisted { height: event.height.0 })
            }
            Event::StateChanged(state) => {
                Self::StateChanged(proto::StateChanged { state: proto::ChainState::from(*state).into() })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sapwood_types::{BlockHash, Height};
    use tonic::Status;

    use super::*;

    #[test]
    fn a_block_comes_back_as_it_was() {
        let (hash, parent) = (BlockHash([1; 32]), BlockHash([2; 32]));
        let block = Block { height: Height(0), hash, parent, time: 7, txs: vec![] };
        for options in [
            ApplyOptions::default(),
            ApplyOptions {
                rules: BlockRules { allow_overwrite: true, subsidy: Some(0), ..BlockRules::default() },
                block_id: Some(0),
                bodies_above: None,
            },
        ] {
            let (read, read_options) = proto::Block::from((&block, options)).read().unwrap();
            assert_eq!(read, block);
            let parts = |options: ApplyOptions| (options.rules, options.block_id);
            assert_eq!(parts(read_options), parts(options), "0 is not unknown");
        }
        let no_height =
            proto::Block { height: None, ..proto::Block::from((&block, ApplyOptions::default())) };
        assert_eq!(Status::from(no_height.read().unwrap_err()).message(), "height: is required");
        let point = ChainPoint::new(Height(0), hash);
        assert_eq!(proto::ChainPoint::from(point).read(), Ok(point));
    }

    #[test]
    fn every_state_comes_back_as_it_was() {
        use ChainState::*;
        for state in [Resetting, CatchingUp, Running, Reorganising, Stalled, Stopped] {
            assert_eq!(proto::ChainState::from(state).read(), Ok(state));
        }
        assert!(proto::ChainState::Unspecified.read().is_err());
    }
}
