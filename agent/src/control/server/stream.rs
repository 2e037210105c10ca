//! `watch` and `record`: events as they come, while a window is open.

use super::Server;
use super::wire::{WRITE_LIMIT, Wire};
use crate::control::protocol::{Reply, Select};
use crate::error::Failure;
use crate::sink::stream::{Stream, Streams};
use crate::target::Target;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::OwnedWriteHalf;

/// Why a window closed; some ends are worth a word to the person.
type Note = Option<String>;

/// Removes a stream from the list however its session ends.
struct Listed<'a>(&'a Streams, Arc<Stream>);

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.0.remove(&self.1);
    }
}

impl Server {
    /// Streams the events of a window that begins now, of `length` or until stopped.
    pub(super) async fn stream(
        &self,
        select: Select,
        length: Option<Duration>,
        wire: &mut Wire,
    ) -> Result<(), Failure> {
        let Ok(_permit) = self.streams.try_acquire() else {
            return Err(Failure::new("too many streams are open").remedy("end one, or raise `limits.streams_max`"));
        };
        let selected = self.registry.select(&select)?;
        let single = matches!(select, Select::Pid(_)).then(|| selected.first().map(Arc::clone)).flatten();
        self.send_events(select, single, length, &selected, wire).await;
        // What waited for a slow reader, who may have been one of many.
        crate::sys::memory::release_freed();
        Ok(())
    }

    async fn send_events(
        &self,
        select: Select,
        single: Option<Arc<Target>>,
        length: Option<Duration>,
        selected: &[Arc<Target>],
        wire: &mut Wire,
    ) {
        let stream = self.sinks.streams.open(select, length);
        let _listed = Listed(&self.sinks.streams, Arc::clone(&stream));
        // A client that left meanwhile has nothing to be told.
        if wire.reply(&Reply::Started { notes: notes(selected) }).await.is_ok() {
            let closed = self.window(&stream, length, single, &mut wire.lines);
            if let Ok(note) = pump(&stream, closed, &mut wire.writer).await {
                let totals = stream.totals();
                let notes = note.into_iter().collect();
                wire.reply_last(&Reply::End { events: totals.events, lost: totals.lost, notes }).await;
            }
        }
    }

    /// Waits for the end of the window and until all that belongs to it has been drained.
    async fn window(
        &self,
        stream: &Stream,
        length: Option<Duration>,
        single: Option<Arc<Target>>,
        lines: &mut super::wire::Lines,
    ) -> Note {
        let mut stopping = self.stopping.clone();
        let time = async {
            match length {
                Some(length) => tokio::time::sleep(length).await,
                None => std::future::pending().await,
            }
        };
        let ended = async {
            match &single {
                Some(target) => target.ended().await,
                None => std::future::pending().await,
            }
        };
        let note = tokio::select! {
            () = time => None,
            () = lines.stopped() => None,
            () = ended => single.as_ref().map(|target| format!("process {} has ended", target.pid)),
            _ = stopping.wait_for(|stopping| *stopping) => Some("the agent is stopping".to_owned()),
        };
        stream.close_window();
        self.drain.settle().await;
        note
    }
}

/// Writes lines as they come until `closed` is done, then the rest of them.
async fn pump(stream: &Stream, closed: impl Future<Output = Note>, writer: &mut OwnedWriteHalf) -> io::Result<Note> {
    let mut closed = pin!(closed);
    let mut lines = Vec::new();
    loop {
        let mut note = tokio::select! {
            note = &mut closed => Some(note),
            () = stream.ready() => None,
        };
        stream.take(&mut lines);
        match note {
            None => note = write_until(&lines, &mut closed, writer).await?,
            Some(_) => write_rest(&lines, writer).await?,
        }
        if let Some(note) = note {
            stream.take(&mut lines);
            write_rest(&lines, writer).await?;
            return Ok(note);
        }
    }
}

/// Writes at the reader's pace while the window is open; once it has closed the reader has
/// a deadline.
async fn write_until(
    lines: &[u8],
    closed: &mut Pin<&mut impl Future<Output = Note>>,
    writer: &mut OwnedWriteHalf,
) -> io::Result<Option<Note>> {
    let mut write = pin!(writer.write_all(lines));
    tokio::select! {
        written = &mut write => written.map(|()| None),
        note = closed => {
            tokio::time::timeout(WRITE_LIMIT, write).await??;
            Ok(Some(note))
        }
    }
}

async fn write_rest(lines: &[u8], writer: &mut OwnedWriteHalf) -> io::Result<()> {
    tokio::time::timeout(WRITE_LIMIT, writer.write_all(lines)).await?
}

fn notes(selected: &[Arc<Target>]) -> Vec<String> {
    let note = if selected.is_empty() {
        "no process can be traced yet: none has joined this agent"
    } else if selected.iter().any(|target| target.is_on()) {
        return Vec::new();
    } else {
        "nothing is switched on: use `tracebyte trace on node.http …`"
    };
    vec![note.into()]
}
