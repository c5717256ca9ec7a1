//! Chunks by cursor.

use std::ops::ControlFlow;

use sapwood_types::Height;

use super::{Chunk, Cursor, ExportError, ExportHead, Exported, MAX_RESPONSE};
use crate::{
    Archive, BlockMeta, Segment,
    error::ArchiveError,
    view::{ArchiveView, Lookup},
};

impl Archive {
    /// Returns the newest block that can be exported. `None` if the archive is empty.
    ///
    /// # Errors
    /// Those of reading.
    pub fn export_head(&self) -> Result<Option<ExportHead>, ArchiveError> {
        let state = self.core.published().state;
        Ok(state.head.map(|head| ExportHead { height: head.height, floor: state.floor }))
    }

    /// Returns up to `max_bytes` bytes from a cursor on, of one block. Without a cursor it begins behind the boundary,
    /// or with the first block.
    ///
    /// # Errors
    /// [`ExportError`], checked in this order: the limit, pruned, the segment, missing, the offset.
    pub fn export_blocks(&self, cursor: Option<Cursor>, max_bytes: u32) -> Result<Exported, ExportError> {
        if max_bytes == 0 {
            return Err(ExportError::Limit);
        }
        let view = self.view()?;
        let first = view.boundary().map(Height::next).or(view.earliest());
        let Some(cursor) = cursor.or(first.map(|first| Cursor::at(first.0.into()))) else {
            return Ok(Exported { chunks: Vec::new(), next_cursor: None });
        };
        if let Some(boundary) = view.boundary().filter(|boundary| cursor.block <= boundary.0.into()) {
            return Err(ExportError::Pruned { block: cursor.block, boundary, earliest: view.earliest() });
        }
        let segment =
            Segment::of(cursor.segment).ok_or(ExportError::BadSegment { segment: cursor.segment })?;
        let height = u32::try_from(cursor.block).ok().map(Height);
        let height = height.filter(|height| view.head().is_some_and(|head| *height <= head.height));
        let Some(height) = height else {
            return Ok(Exported { chunks: Vec::new(), next_cursor: Some(cursor) });
        };
        let Lookup::Found(block) = view.block(height)? else {
            return Err(ExportError::Missing { block: cursor.block, next: next_block(&view, height)? });
        };
        let len = block.len(segment) as u32;
        if cursor.byte_offset > len {
            let Cursor { block, segment, byte_offset } = cursor;
            return Err(ExportError::OffsetPastEnd { block, segment, byte_offset, len });
        }
        Ok(chunks(&view, &block, cursor, max_bytes.min(MAX_RESPONSE))?)
    }
}

/// Cuts a block into chunks from a cursor on.
fn chunks(
    view: &ArchiveView<'_>,
    block: &BlockMeta,
    cursor: Cursor,
    max_bytes: u32,
) -> Result<Exported, ArchiveError> {
    let mut chunks: Vec<Chunk> = Vec::new();
    let mut left = max_bytes;
    let mut next = cursor;
    while left > 0 {
        // Behind the last segment the next block begins.
        let Some(segment) = Segment::of(next.segment) else {
            next = Cursor::at(cursor.block + 1);
            break;
        };
        let payload_len = block.len(segment) as u32;
        let start = next.byte_offset;
        let length = (payload_len - start).min(left);
        // The first chunk says where the response begins, also if it has no bytes.
        if length > 0 || chunks.is_empty() {
            let bytes = view.payload_range(block, segment, start.into(), length.into())?;
            chunks.push(Chunk { block: cursor.block, segment: next.segment, start, bytes, payload_len });
        }
        left -= length;
        next.byte_offset = start + length;
        if next.byte_offset == payload_len {
            next = Cursor { segment: next.segment + 1, byte_offset: 0, ..next };
        }
    }
    // With the last byte of the limit the last segment may have ended, too.
    if usize::from(next.segment) == Segment::ALL.len() {
        next = Cursor::at(cursor.block + 1);
    }
    Ok(Exported { chunks, next_cursor: Some(next) })
}

/// The first block above a height. `None` if there is none.
fn next_block(view: &ArchiveView<'_>, height: Height) -> Result<Option<Height>, ArchiveError> {
    let mut next = None;
    view.blocks_from(height.next(), |height, _| {
        next = Some(height);
        Ok(ControlFlow::Break(()))
    })?;
    Ok(next)
}
