//! Which replicas should not lead, by what their hosts say of them: whoever leads puts what is committed into its view and
//! reads it there.

use braid_base::ids::{HostId, PartitionId};
use braid_base::msg::host::SeatReport;

/// For each of `partitions` the hosts whose replica should not lead it: it stopped, or waits for room, or its view is damaged.
/// A host that says nothing of its replica is not judged: whoever is to lead must have answered its primary just before.
pub fn unfit(
    reports: &[(HostId, SeatReport)],
    partitions: impl Iterator<Item = PartitionId>,
) -> impl Iterator<Item = Vec<HostId>> {
    partitions.map(|p| {
        let is_unfit = |report: &SeatReport| report.failed.is_some() || report.waits.is_some();
        let of = reports.iter().filter(|(_, report)| report.partition == p && is_unfit(report));
        of.map(|(host, _)| *host).collect()
    })
}

#[cfg(test)]
mod tests {
    use braid_base::ErrorKind;
    use braid_base::ids::{HostId, PartitionId};
    use braid_base::msg::host::SeatReport;

    #[test]
    fn who_waits_or_has_stopped_should_not_lead() {
        let report = |host, p, failed: Option<ErrorKind>, waits: Option<ErrorKind>| {
            let (failed, waits) = (failed.map(Into::into), waits.map(Into::into));
            (HostId(host), SeatReport { partition: PartitionId(p), failed, waits, ..SeatReport::default() })
        };
        let reports = [
            report(1, 0, None, None),
            report(2, 0, None, Some(ErrorKind::NoSpace)),
            report(2, 1, None, None),
            report(3, 1, Some(ErrorKind::Stopped), None),
            report(4, 0, None, Some(ErrorKind::Corrupt)),
        ];
        let found: Vec<Vec<HostId>> = super::unfit(&reports, (0..3).map(PartitionId)).collect();
        assert_eq!(found, [vec![HostId(2), HostId(4)], vec![HostId(3)], vec![]]);
    }
}
