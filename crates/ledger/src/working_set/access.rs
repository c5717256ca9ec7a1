//! What a transition reads and changes. Every accessor stops with [`Stop::Need`](super::Stop::Need) at a page that is not loaded, and fails at
//! one that cannot be read.

use std::sync::Arc;

use sapwood_types::{
    FirstPage, FurtherPage, Height, OutPoint, Output, PageView, RecordHeader, Slot, Tx, TxBody, TxHead, TxId,
    TxRecord, first_page::pages_of, page::further_pages,
};

use super::{
    Access, Journal, PageKey, WorkingSet, corrupt,
    entry::{LoadedPage, PageEntry, PageState},
    missing_page, touch,
};

impl WorkingSet {
    fn entry(&mut self, txid: TxId) -> Access<&mut PageEntry> {
        touch(&mut self.first, &txid, &mut self.missing, (txid, 0))
    }

    /// Returns the first page of a transaction and its header, which may be ahead of it.
    fn first_page(&mut self, txid: TxId) -> Access<Option<(&FirstPage, &RecordHeader)>> {
        let opened = self.entry(txid)?.open().map_err(|cause| corrupt(txid, cause))?;
        Ok(opened.map(|(page, header)| (page, header.as_ref())))
    }

    /// Returns the header of a record. `None` if it is not stored.
    pub fn header(&mut self, txid: TxId) -> Access<Option<&RecordHeader>> {
        Ok(self.first_page(txid)?.map(|(_, header)| header))
    }

    /// Returns the state of a transaction. `None` if it is not stored.
    pub fn head(&mut self, txid: TxId) -> Access<Option<&TxHead>> {
        Ok(self.header(txid)?.map(|header| &header.head))
    }

    /// Returns the state of a transaction, to be changed. `None` if it is not stored.
    pub fn head_mut(&mut self, txid: TxId) -> Access<Option<&mut TxHead>> {
        Ok(self.header_mut(txid)?.map(|header| &mut header.head))
    }

    /// Whether a transaction is stored.
    pub fn contains(&mut self, txid: TxId) -> Access<bool> {
        self.entry(txid).map(|entry| entry.is_present())
    }

    /// Returns the header of a record, to be changed. `None` if it is not stored.
    fn header_mut(&mut self, txid: TxId) -> Access<Option<&mut RecordHeader>> {
        let entry = touch(&mut self.first, &txid, &mut self.missing, (txid, 0))?;
        Journal::note_first(&mut self.journal, txid, &entry.now);
        Ok(entry.open_mut().map_err(|cause| corrupt(txid, cause))?)
    }

    /// Lists what a stored transaction spends.
    pub fn inputs(&mut self, txid: TxId) -> Access<Vec<OutPoint>> {
        let Some((page, header)) = self.first_page(txid)? else { return Ok(Vec::new()) };
        let body = page.body(header).map_err(|cause| corrupt(txid, cause))?;
        Ok(body.inputs.iter().map(|input| input.outpoint).collect())
    }

    /// Returns the body of a stored transaction. `None` if it is not stored.
    pub fn body(&mut self, txid: TxId) -> Access<Option<TxBody>> {
        let Some((page, header)) = self.first_page(txid)? else { return Ok(None) };
        Ok(Some(page.body(header).map_err(|cause| corrupt(txid, cause))?))
    }

    /// Shows the page that holds an output: the first page, or a further one. `None` if there is no such output.
    fn page_of(&mut self, outpoint: OutPoint) -> Access<Option<PageView<'_>>> {
        let Some(header) = self.header(outpoint.txid)? else { return Ok(None) };
        if outpoint.vout >= header.head.output_count {
            return Ok(None);
        }
        if outpoint.page() > 0 {
            return Ok(Some(self.further_page(outpoint.txid, outpoint.page())?.view()));
        }
        let Some((page, header)) = self.first_page(outpoint.txid)? else { return Ok(None) };
        Ok(Some(page.view(header).map_err(|cause| corrupt(outpoint.txid, cause))?))
    }

    fn further_page(&mut self, txid: TxId, page: u32) -> Access<&FurtherPage> {
        let key = (txid, page);
        let entry = touch(&mut self.further, &key, &mut self.missing, key)?;
        Ok(entry.now.as_deref().ok_or_else(|| missing_page(txid))?)
    }

    /// Returns the state of an output. `None` if its transaction is not stored or has no such output.
    pub fn slot(&mut self, outpoint: OutPoint) -> Access<Option<Slot>> {
        if outpoint.page() > 0 {
            return Ok(self.page_of(outpoint)?.and_then(|page| page.slots.get(outpoint.place()).copied()));
        }
        let header = self.header(outpoint.txid)?;
        Ok(header.and_then(|header| header.slots.get(outpoint.place()).copied()))
    }

    /// Returns an output as it is kept. `None` if it is not.
    pub fn output(&mut self, outpoint: OutPoint) -> Access<Option<Output>> {
        let Some(page) = self.page_of(outpoint)? else { return Ok(None) };
        Ok(page.output(outpoint.place()).map_err(|cause| corrupt(outpoint.txid, cause))?)
    }

    /// Changes a further page, and the first page's summary of it.
    fn change_further<T>(&mut self, key: PageKey, change: impl FnOnce(&mut FurtherPage) -> T) -> Access<T> {
        let (txid, page) = key;
        let entry = touch(&mut self.further, &key, &mut self.missing, key)?;
        Journal::note_further(&mut self.journal, key, &entry.now);
        let further = entry.now.as_mut().map(Arc::make_mut).ok_or_else(|| missing_page(txid))?;
        let result = change(further);
        let summary = further.summary();
        let header = self.header_mut(txid)?.ok_or_else(|| missing_page(txid))?;
        if let Some(place) = header.summaries.get_mut(page as usize - 1) {
            *place = summary;
        }
        Ok(result)
    }

    /// Sets the state of an output that is there.
    pub fn set_slot(&mut self, outpoint: OutPoint, slot: Slot) -> Access<()> {
        let (txid, page, place) = (outpoint.txid, outpoint.page(), outpoint.place());
        let set = |slots: &mut [Slot]| {
            if let Some(place) = slots.get_mut(place) {
                *place = slot;
            }
        };
        if page > 0 {
            return self.change_further((txid, page), |page| set(&mut page.slots));
        }
        set(&mut self.header_mut(txid)?.ok_or_else(|| missing_page(txid))?.slots);
        Ok(())
    }

    /// Puts another output in the place of one that is kept.
    pub fn set_output(&mut self, outpoint: OutPoint, output: Output) -> Access<()> {
        let (txid, page, place) = (outpoint.txid, outpoint.page(), outpoint.place());
        if page > 0 {
            let set = self.change_further((txid, page), |page| page.set_output(place, output))?;
            return Ok(set.map_err(|cause| corrupt(txid, cause))?);
        }
        self.header_mut(txid)?;
        Ok(self.entry(txid)?.set_output(place, output).map_err(|cause| corrupt(txid, cause))?)
    }

    /// Shows the state of an output and of its transaction (`None` if the transaction is not stored), and changes the output as the answer
    /// says. The hot path of a block: one look-up where the output is on the first page.
    pub fn decide_slot<E>(
        &mut self,
        outpoint: OutPoint,
        decide: impl FnOnce(Option<(&TxHead, Option<&Slot>)>) -> Result<Slot, E>,
    ) -> Access<Result<(), E>> {
        if outpoint.page() > 0 {
            let slot = self.slot(outpoint)?;
            let seen = self.header(outpoint.txid)?.map(|header| (&header.head, slot.as_ref()));
            return match decide(seen) {
                Ok(slot) => self.set_slot(outpoint, slot).map(Ok),
                Err(error) => Ok(Err(error)),
            };
        }
        let (txid, place) = (outpoint.txid, outpoint.place());
        let entry = touch(&mut self.first, &txid, &mut self.missing, (txid, 0))?;
        let decided = entry.decide_slot(place, decide, &mut self.scratch);
        let changed = match decided.map_err(|cause| corrupt(txid, cause))? {
            Ok(Some(changed)) => changed,
            Ok(None) => return Ok(Ok(())),
            Err(error) => return Ok(Err(error)),
        };
        Journal::note_first(&mut self.journal, txid, &entry.now);
        entry.now = changed;
        Ok(Ok(()))
    }

    /// Sets since when a transaction is a loser; `None` if it is not. Its outputs come off or onto the address index with it, so all its
    /// pages count as changed.
    pub fn set_conflicting_since(&mut self, txid: TxId, since: Option<Height>) -> Access<()> {
        self.want_pages(txid)?;
        let Some(header) = self.header_mut(txid)? else { return Ok(()) };
        header.head.conflicting_since = since;
        for page in 1..=further_pages(header.head.output_count) {
            self.change_further((txid, page), |_| ())?;
        }
        Ok(())
    }

    /// Lists the transactions that spend from a transaction, in the order of its outputs, and declares them. Those named on pages that are
    /// loaded are declared even if it stops.
    pub fn children(&mut self, txid: TxId) -> Access<Vec<TxId>> {
        fn add(slots: &[Slot], to: &mut Vec<TxId>) {
            to.extend(slots.iter().filter_map(Slot::spender).map(|spender| spender.child));
        }
        self.want_pages(txid)?;
        let Some(header) = self.header(txid)? else { return Ok(Vec::new()) };
        let (mut children, mut result) = (Vec::new(), Ok(()));
        add(&header.slots, &mut children);
        for page in 1..=further_pages(header.head.output_count) {
            match self.further_page(txid, page) {
                Ok(page) => add(&page.slots, &mut children),
                Err(stop) => result = Err(stop),
            }
        }
        self.want(children.iter().copied());
        result.map(|()| children)
    }

    /// Lists the state of all outputs of a transaction.
    pub fn slots(&mut self, txid: TxId) -> Access<Vec<Slot>> {
        self.want_pages(txid)?;
        let Some(header) = self.header(txid)? else { return Ok(Vec::new()) };
        let mut slots = header.slots.to_vec();
        for page in 1..=further_pages(header.head.output_count) {
            slots.extend_from_slice(&self.further_page(txid, page)?.slots);
        }
        Ok(slots)
    }

    /// Decodes a whole record, with all its pages. `None` if it is not stored.
    pub fn record(&mut self, txid: TxId) -> Access<Option<TxRecord>> {
        self.want_pages(txid)?;
        let Some(header) = self.header(txid)? else { return Ok(None) };
        let mut further = Vec::new();
        for page in 1..=further_pages(header.head.output_count) {
            let key = (txid, page);
            let page = touch(&mut self.further, &key, &mut self.missing, key)?.now.clone();
            further.push(page.ok_or_else(|| missing_page(txid))?);
        }
        let first = self.first_page(txid)?;
        let record = first.map(|(page, header)| TxRecord::assemble_with(txid, page, header, &further));
        Ok(record.transpose().map_err(|cause| corrupt(txid, cause))?)
    }

    /// Puts the record of a new transaction in place, of which no output is spent yet. One of the same id must have been removed before.
    pub fn insert_new(&mut self, tx: &Tx, head: TxHead) -> Access<()> {
        let (first, further) = pages_of(tx, head, &mut self.scratch);
        self.put(tx.txid, first, further)
    }

    /// Puts a record in place. A record of the same id must have been removed before.
    pub fn insert(&mut self, record: &TxRecord) -> Access<()> {
        let (first, further) = record.to_pages();
        self.put(record.txid, first, further)
    }

    fn put(&mut self, txid: TxId, first: FirstPage, further: Vec<FurtherPage>) -> Access<()> {
        let entry = touch(&mut self.first, &txid, &mut self.missing, (txid, 0))?;
        Journal::note_first(&mut self.journal, txid, &entry.now);
        entry.now = PageState::Written(LoadedPage::new(first));
        for (page, number) in further.into_iter().zip(1..) {
            // A page that is not loaded cannot exist: the record is new, or all pages of the one it replaces were loaded to remove it.
            let entry = self.further.entry((txid, number)).or_insert_with(|| Ok(Default::default()));
            let entry = entry.as_mut().map_err(|error| error.as_ref().clone())?;
            Journal::note_further(&mut self.journal, (txid, number), &entry.now);
            entry.now = Some(Arc::new(page));
        }
        Ok(())
    }

    /// Removes a record with all its pages.
    pub fn remove(&mut self, txid: TxId) -> Access<()> {
        self.want_pages(txid)?;
        let Some(header) = self.header(txid)? else { return Ok(()) };
        for page in 1..=further_pages(header.head.output_count) {
            let key = (txid, page);
            let entry = touch(&mut self.further, &key, &mut self.missing, key)?;
            Journal::note_further(&mut self.journal, key, &entry.now);
            entry.now = None;
        }
        let entry = touch(&mut self.first, &txid, &mut self.missing, (txid, 0))?;
        Journal::note_first(&mut self.journal, txid, &entry.now);
        entry.now = PageState::Absent;
        Ok(())
    }
}
