//! Events: what an administrator asks for and tells, and what he did.

use braid_base::Result;
use braid_base::msg::event::{Event, EventType};
use braid_cluster::events;
use braid_cluster::view::events::{EventQuery, EventSpec, EventsView};

use super::super::views;
use super::Node;

impl Node {
    /// Those that the hosts have kept, or this one.
    pub(super) async fn kept_events(&self, query: EventQuery) -> Result<EventsView> {
        let filter = events::filter(&query, views::now_ms())?;
        let told = self.host()?.events(&filter, query.local).await;
        events::view(&self.recorded()?.0, &filter, told, query.local)
    }

    pub(super) fn trigger(&self, spec: &EventSpec) -> Result<()> {
        self.host()?.event_log().tell(events::custom(&spec.text)?);
        Ok(())
    }

    /// Tells what somebody did.
    pub(super) fn tell(&self, event: Event) {
        // A host that stops has told what it had to.
        if let Ok(host) = self.host() {
            host.event_log().tell(event);
        }
    }

    /// Something was done to a file system.
    pub(super) fn tell_filesystem(&self, kind: EventType, name: &str, done: &str) {
        self.tell(Event::new(kind, format!("file system {name} was {done}")).about("filesystem", name));
    }

    /// How something was changed that is called `name` now, and was called `before`.
    pub(super) fn changed(before: &str, name: &str) -> String {
        if before == name { "changed".to_owned() } else { format!("changed, and is called {name} now") }
    }

    /// Something was done to a group.
    pub(super) fn tell_group(&self, kind: EventType, name: &str, done: &str) {
        self.tell(Event::new(kind, format!("group {name} was {done}")).about("group", name));
    }

    /// Something was done to an object store.
    pub(super) fn tell_store(&self, kind: EventType, name: &str, done: &str) {
        self.tell(Event::new(kind, format!("object store {name} was {done}")).about("object_store", name));
    }

    /// Something was done about `store` and `filesystem`.
    pub(super) fn tell_attachment(&self, kind: EventType, filesystem: &str, store: &str, done: &str) {
        let event = Event::new(kind, format!("object store {store} {done} file system {filesystem}"));
        self.tell(event.about("filesystem", filesystem).about("object_store", store));
    }
}
