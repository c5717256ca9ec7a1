//! Block files that begin later than the chain, where an earlier import ended or a pruned node still has them.

use std::collections::HashSet;

use sapwood_chain::Chain;
use sapwood_sources::{BlockSource as _, ChainPoint, bitcoin::BlkSource};
use sapwood_types::Height;

/// The applied block to build on, if the way from the chain's first block to the last applied one is not in the files. As far
/// back as blocks can be taken back, so that another branch is found too.
pub(crate) async fn anchor(chain: &Chain, source: &BlkSource) -> anyhow::Result<Option<ChainPoint>> {
    let Some(last) = chain.last().await? else { return Ok(None) };
    let report = source.report();
    if report.unconnected == 0 || source.header(&last.hash).await?.is_some() {
        return Ok(None);
    }
    let parents: HashSet<_> = report.orphans.iter().map(|orphan| orphan.parent).collect();
    let floor = chain.store().rollback_floor().await?.unwrap_or(last.height);
    let mut lowest = None;
    for height in (floor.0..=last.height.0).map(Height) {
        let Some(hash) = chain.hash_at(height).await? else { continue };
        let point = ChainPoint::new(height, hash);
        if parents.contains(&hash) {
            return Ok(Some(point));
        }
        lowest = lowest.or(Some(point));
    }
    Ok(lowest)
}
