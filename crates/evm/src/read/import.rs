//! Files of blocks as a run of checked blocks.

use std::{sync::Arc, vec};

use alloy_eips::BlockNumHash;

use super::{
    blocks::BlockFile,
    error::{Fault, ImportError},
    input::Origin,
    receipts::ReceiptsFile,
};
use crate::{
    block::BlockParts,
    chain::ChainSpec,
    check::{BlockError, CheckedBlock, Checker},
};

/// Reads files in order and checks every block. It ends with the last file or with the first error.
#[derive(Debug)]
pub struct Import {
    files: vec::IntoIter<Origin>,
    current: Option<BlockFile>,
    receipts: Option<ReceiptsFile>,
    stored: Option<BlockNumHash>,
    checker: Checker,
    skipped: u64,
    failed: bool,
}

impl Import {
    /// Creates an import that goes on after the block `stored`, or with `None` begins with whatever block comes first.
    ///
    /// Blocks up to `stored` are passed over, so that an import can be repeated; [`skipped`](Self::skipped) counts them. `receipts` are for
    /// files that have none of their own.
    pub fn new(
        spec: Arc<ChainSpec>,
        stored: Option<BlockNumHash>,
        files: Vec<Origin>,
        receipts: Option<ReceiptsFile>,
    ) -> Self {
        let checker = Checker::new(spec, stored);
        Self { files: files.into_iter(), current: None, receipts, stored, checker, skipped: 0, failed: false }
    }

    /// Returns how many blocks were passed over because they are stored already.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    fn next_block(&mut self) -> Result<Option<CheckedBlock>, ImportError> {
        loop {
            let Some(file) = &mut self.current else {
                let Some(next) = self.files.next() else { return Ok(None) };
                self.current = Some(BlockFile::open(&next)?);
                continue;
            };
            let Some(raw) = file.next_block()? else {
                self.current = None;
                continue;
            };
            let refused = |fault| file.error(raw.offset, fault);
            let parts =
                BlockParts::split(&raw.block).map_err(|fault| refused(BlockError::Shape(fault).into()))?;
            if is_stored(self.stored, &parts).map_err(refused)? {
                self.skipped += 1;
                continue;
            }
            // A gap is reported as a gap, not as missing receipts.
            self.checker.check_link(&parts).map_err(|error| refused(error.into()))?;
            let receipts = match (raw.receipts, &mut self.receipts) {
                (Some(own), _) => Some(own),
                (None, Some(beside)) => Some(beside.of_block(parts.header.number)?),
                (None, None) => None,
            };
            return self.checker.check(&parts, receipts).map(Some).map_err(|error| refused(error.into()));
        }
    }
}

impl Iterator for Import {
    type Item = Result<CheckedBlock, ImportError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.next_block();
        self.failed = next.is_err();
        next.transpose()
    }
}

/// Whether a block comes no later than the last stored one. One of the same number has to be the same.
fn is_stored(stored: Option<BlockNumHash>, parts: &BlockParts) -> Result<bool, Fault> {
    let Some(stored) = stored else { return Ok(false) };
    let number = parts.header.number;
    if number == stored.number && parts.hash != stored.hash {
        return Err(Fault::OtherBlock { number, expected: stored.hash, found: parts.hash });
    }
    Ok(number <= stored.number)
}
