//! How hosts stand to each other: what their clocks show, and whom they reach only by way of others.

use std::sync::Arc;

use braid_base::ids::HostId;
use braid_base::msg::host::{HostOp, HostReply, Ways};
use braid_io::clock;
use tokio::task::JoinSet;

use super::setup::Host;
use super::wire::{Company, Switch, wall_ms};

impl Host {
    /// How far the clocks of hosts are ahead of that of this one, milliseconds, as far as they answer; its own is 0.
    pub async fn clocks(&self) -> Vec<(HostId, i64)> {
        let mut all = self.switch.clocks_of_others().await;
        all.push((self.config.host, 0));
        all
    }

    /// Whom hosts reach only by way of others, as far as they answer.
    pub async fn ways(&self) -> Vec<(HostId, Ways)> {
        let mut all = self.switch.ways_of_others().await;
        all.push((self.config.host, self.switch.ways()));
        all
    }
}

impl Switch {
    /// Whom this host reaches only by way of others.
    pub(super) fn ways(&self) -> Ways {
        let found =
            |company: &Company| Ways { relayed: company.routes.relayed(), etcd_by_others: (company.etcd_by_others)() };
        self.company.as_ref().map(found).unwrap_or_default()
    }

    /// The same of each other host that answers.
    pub(super) async fn ways_of_others(&self) -> Vec<(HostId, Ways)> {
        let answers = self.ask_others(&HostOp::Ways).await.into_iter();
        answers
            .filter_map(|(host, answer)| if let Ok(HostReply::Ways(ways)) = answer { Some((host, ways)) } else { None })
            .collect()
    }

    /// How far the clocks of other hosts are ahead of that of this one, milliseconds; 0 if that is no more than the way
    /// there and back could make of it. Hosts that do not answer are left out.
    pub(super) async fn clocks_of_others(&self) -> Vec<(HostId, i64)> {
        let Some(company) = &self.company else { return Vec::new() };
        let mut asked = JoinSet::new();
        for host in company.routes.reached() {
            let routes = Arc::clone(&company.routes);
            asked.spawn(async move {
                let (before, begun_ms) = (wall_ms(), clock::mono_ms());
                let reply = routes.ask(host, HostOp::Clock).await;
                (host, reply, before, clock::mono_ms() - begun_ms)
            });
        }
        let mut all = Vec::new();
        while let Some(answer) = asked.join_next().await {
            if let Ok((host, Ok(HostReply::Clock(theirs)), before, took_ms)) = answer {
                let between = i128::from(theirs) - i128::from(before + took_ms / 2);
                let ahead = if between.unsigned_abs() > u128::from(took_ms.div_ceil(2)) { between } else { 0 };
                all.push((host, i64::try_from(ahead).unwrap_or(i64::MAX)));
            }
        }
        all
    }
}
