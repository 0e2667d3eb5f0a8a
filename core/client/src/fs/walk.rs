//! What a program that walks through directories is likely to want next comes before it asks.

use braid_base::ids::Ino;
use braid_base::msg::fs::{Op, Reply};
use braid_base::msg::lease::LeaseKind;

use super::Fs;
use crate::ahead::Page;
use crate::join::{both, join_in_bursts};
use crate::siblings::Foreseen;

impl Fs {
    /// Names in `dir` are wanted: fetches the directories that are likely to be entered next, if fetching has been of use.
    pub(super) fn walks(&self, dir: Ino) {
        let Some(background) = self.0.background.as_ref().filter(|_| !self.0.session.shares_fate()) else { return };
        let Foreseen { dirs, removes } = self.0.siblings.used(dir);
        for next in dirs {
            let alone = removes && self.alone_wanted(next);
            let anew = alone && self.holds_back(next).is_none();
            let ahead = &self.0.ahead;
            let Some(page) = (if anew { ahead.begin_anew(next) } else { ahead.begin(next) }) else { continue };
            let this = self.clone();
            background.spawn(Box::pin(async move {
                // Whoever enters it asks again, and hears what is wrong.
                if alone {
                    // What is found in it is for this client alone then, too, and its names can go by promise.
                    let alone = this.ask(Op::AskLease { ino: next, kind: LeaseKind::Exclusive });
                    let _ = both(alone, this.list_page(next, page)).await;
                    return;
                }
                let _ = both(this.getattr(next), this.list_page(next, page)).await;
                let files = this.0.bodies.begin(next);
                this.fetch_bodies(files, true).await;
            }));
        }
    }

    /// A name in `dir` that is there, or its inode, has to be asked for: fetches more of it if that has become a habit.
    pub(super) fn list_ahead(&self, dir: Ino) {
        let Some(background) = &self.0.background else { return };
        if self.0.session.leases().is_none() {
            // Nothing of it could be remembered.
            return;
        }
        let Some(page) = self.0.ahead.miss(dir) else { return };
        let this = self.clone();
        background.spawn(Box::pin(async move { this.list_page(dir, page).await }));
    }

    async fn list_page(&self, dir: Ino, page: Page) {
        let Page { cookie, limit, .. } = page;
        let found = match self.ask(Op::Readdir { dir, cookie, limit, plus: true }).await {
            Ok(Reply::Entries { entries, end }) => {
                self.note_listed(dir, &entries);
                let next = entries.last().filter(|_| !end).map_or(0, |last| last.cookie);
                Some((entries.len(), next))
            }
            _ => None,
        };
        self.0.ahead.fetched(dir, page, found);
    }

    pub(super) async fn fetch_bodies(&self, files: Vec<Ino>, recall: bool) {
        let fetches = files.into_iter().map(|ino| self.fetch_body(ino, recall)).collect::<Vec<_>>();
        join_in_bursts(fetches.len().max(1), fetches).await;
    }
}
