//! A first page in the working set: it stays as it is stored for as long as possible.

use std::sync::Arc;

use sapwood_types::{DecodeError, FirstPage, Height, Output, RecordHeader, Scratch, Slot, TxHead};

use crate::changes::{Derived, FirstPageChange, PageVersion};

/// A first page as it was loaded and as it is.
#[derive(Default)]
pub(super) struct PageEntry {
    before: Option<LoadedPage>,
    pub(super) now: PageState,
}

/// A first page as it is stored, with the parts that were decoded.
#[derive(Clone)]
pub(super) struct LoadedPage {
    page: FirstPage,
    header: Option<Arc<RecordHeader>>,
    derived: Option<Derived>,
}

/// What has become of a first page.
#[derive(Clone, Default)]
pub(super) enum PageState {
    /// It is as it was loaded.
    #[default]
    Unchanged,
    /// There is none.
    Absent,
    /// There is another one in its place.
    Written(LoadedPage),
    /// Its header was changed and is not encoded yet.
    Changed(FirstPage, Arc<RecordHeader>),
}

impl LoadedPage {
    pub(super) fn new(page: FirstPage) -> Self {
        Self { page, header: None, derived: None }
    }

    /// Decodes the header, once.
    fn open(&mut self) -> Result<(&FirstPage, &Arc<RecordHeader>), DecodeError> {
        let header = match self.header.take() {
            Some(header) => header,
            None => Arc::new(self.page.header()?),
        };
        Ok((&self.page, self.header.insert(header)))
    }
}

impl PageEntry {
    pub(super) fn loaded(page: Option<FirstPage>) -> Self {
        Self { before: page.map(LoadedPage::new), now: PageState::Unchanged }
    }

    /// Whether there is a page.
    pub(super) fn is_present(&self) -> bool {
        match self.now {
            PageState::Unchanged => self.before.is_some(),
            PageState::Absent => false,
            PageState::Written(_) | PageState::Changed(..) => true,
        }
    }

    pub(super) fn is_changed(&self) -> bool {
        match self.now {
            PageState::Unchanged => false,
            PageState::Absent => self.before.is_some(),
            PageState::Written(_) | PageState::Changed(..) => true,
        }
    }

    /// Returns the page and its header, which may be ahead of the page. `None` if there is no page.
    pub(super) fn open(&mut self) -> Result<Option<(&FirstPage, &Arc<RecordHeader>)>, DecodeError> {
        let loaded = match &mut self.now {
            PageState::Unchanged => self.before.as_mut(),
            PageState::Absent => None,
            PageState::Written(loaded) => Some(loaded),
            PageState::Changed(page, header) => return Ok(Some((page, header))),
        };
        loaded.map(LoadedPage::open).transpose()
    }

    /// Returns the header to be changed. `None` if there is no page.
    pub(super) fn open_mut(&mut self) -> Result<Option<&mut RecordHeader>, DecodeError> {
        if !matches!(self.now, PageState::Changed(..)) {
            let Some((page, header)) = self.open()? else { return Ok(None) };
            self.now = PageState::Changed(page.clone(), Arc::clone(header));
        }
        Ok(match &mut self.now {
            PageState::Changed(_, header) => Some(Arc::make_mut(header)),
            _ => None,
        })
    }

    /// Puts another output in the place of one that is kept. The header was opened to be changed before.
    pub(super) fn set_output(&mut self, place: usize, output: Output) -> Result<(), DecodeError> {
        if let PageState::Changed(page, header) = &mut self.now {
            *page = page.with_output(header, place, output)?;
        }
        Ok(())
    }

    /// Shows the state of the whole transaction and of one output (`None` if there is no page), and returns what becomes of the page by the
    /// answer. `None` if it has no such output.
    pub(super) fn decide_slot<E>(
        &mut self,
        place: usize,
        decide: impl FnOnce(Option<(&TxHead, Option<&Slot>)>) -> Result<Slot, E>,
        scratch: &mut Scratch,
    ) -> Result<Result<Option<PageState>, E>, DecodeError> {
        let is_unchanged = matches!(self.now, PageState::Unchanged);
        let loaded = match &mut self.now {
            PageState::Unchanged => self.before.as_mut(),
            PageState::Absent => None,
            PageState::Written(loaded) => Some(loaded),
            PageState::Changed(page, header) => {
                return Ok(decide(Some((&header.head, header.slots.get(place)))).map(|slot| {
                    let mut header = Arc::clone(header);
                    *Arc::make_mut(&mut header).slots.get_mut(place)? = slot;
                    Some(PageState::Changed(page.clone(), header))
                }));
            }
        };
        let Some(loaded) = loaded else { return Ok(decide(None).map(|_| None)) };
        let mut header = match &loaded.header {
            Some(header) => header.as_ref().clone(),
            None => loaded.page.header()?,
        };
        if is_unchanged {
            loaded.derived.get_or_insert_with(|| Derived::of(header.view()));
        }
        Ok(decide(Some((&header.head, header.slots.get(place)))).map(|slot| {
            *header.slots.get_mut(place)? = slot;
            let page = loaded.page.with_slots(&header, scratch);
            Some(PageState::Written(LoadedPage {
                page,
                header: None,
                derived: Some(Derived::of(header.view())),
            }))
        }))
    }

    /// Returns what was changed. Slots whose spender was mined at or below `settled_below` forget who it was.
    pub(super) fn into_change(
        self,
        settled_below: Option<Height>,
        scratch: &mut Scratch,
    ) -> Result<FirstPageChange, DecodeError> {
        let version = |loaded: LoadedPage| match (loaded.derived, &loaded.header) {
            (Some(derived), _) => Ok(PageVersion { page: loaded.page, derived }),
            (None, Some(header)) => {
                Ok(PageVersion { derived: Derived::of(header.view()), page: loaded.page })
            }
            (None, None) => PageVersion::of(loaded.page),
        };
        let before = self.before.map(version).transpose()?;
        let mut now = match self.now {
            PageState::Unchanged => before.clone(),
            PageState::Absent => None,
            PageState::Written(loaded) => Some(version(loaded)?),
            PageState::Changed(page, header) => {
                let derived = Derived::of(header.view());
                Some(PageVersion { page: page.with_header(&header, scratch), derived })
            }
        };
        if let (Some(now), Some(height)) = (&mut now, settled_below) {
            now.forget(height, scratch)?;
        }
        Ok(FirstPageChange { before, now })
    }
}
