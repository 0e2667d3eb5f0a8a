//! The certificate of a host: kept in its directory, and replaced long before it ends, while the host runs.

use std::path::{Path, PathBuf};
use std::sync::Weak;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use braid_base::ids::HostId;
use braid_base::{Error, ErrorKind, Result};
use braid_cluster::facts::Cluster;
use braid_wire::tls::{Authority, Identity};

/// Certificate and key of the host, and who vouches for it.
const FILE: &str = "host.pem";
const DAY_S: i64 = 24 * 3600;
/// It is replaced when it is good for less than this, seconds.
const RENEW_S: i64 = 90 * DAY_S;
/// If that was not possible, status says so when it is good for less than this, seconds.
const SOON_S: i64 = 30 * DAY_S;
/// How often a host looks at it.
const LOOK: Duration = Duration::from_secs(12 * 3600);

/// What a host shows others, and where a newer one comes from.
pub struct Certificate {
    dir: PathBuf,
    join_secret: Option<PathBuf>,
    cluster: Cluster,
    shown: Identity,
}

impl Certificate {
    /// That of `host`, whose directory is `dir`, if the cluster has an authority: the one kept from before while it is good
    /// for some time, else a new one, if there is a join secret for that. Errors: `Refused` without one, if none is good.
    pub fn of(dir: &Path, join_secret: Option<&Path>, cluster: &Cluster, host: HostId) -> Result<Option<Self>> {
        if cluster.authority.is_empty() {
            return Ok(None);
        }
        let (dir, join_secret) = (dir.to_owned(), join_secret.map(Path::to_owned));
        let (old, now_s) = (kept(&dir, cluster, host), now_s());
        // One that is good from tomorrow on was made while the clock of this host was ahead.
        let shown = match old.filter(|own| own.begins_s() <= now_s && own.expires_s() > now_s) {
            Some(own) if own.expires_s() > now_s + RENEW_S => own,
            // It is good enough to start with.
            Some(own) => issue(&dir, join_secret.as_deref(), cluster, host).unwrap_or(own),
            None => issue(&dir, join_secret.as_deref(), cluster, host)?,
        };
        Ok(Some(Self { dir, join_secret, cluster: cluster.clone(), shown }))
    }

    /// What is shown, also after it was replaced.
    pub fn identity(&self) -> &Identity {
        &self.shown
    }

    /// Replaces it in time, as long as the host runs.
    pub async fn keep(this: Weak<Self>) {
        while let Some(own) = this.upgrade() {
            let _ = tokio::task::spawn_blocking(move || own.look(now_s())).await;
            tokio::time::sleep(LOOK).await;
        }
    }

    fn look(&self, now_s: i64) {
        if self.shown.expires_s() > now_s + RENEW_S {
            return;
        }
        let days = (self.shown.expires_s() - now_s) / DAY_S;
        match self.renew() {
            Ok(()) => tracing::info!("the certificate of this host, good for {days} days more, was replaced"),
            Err(error) => tracing::warn!(
                "the certificate of this host is good for {days} days more and cannot be replaced: {error}"
            ),
        }
    }

    fn renew(&self) -> Result<()> {
        let newer = issue(&self.dir, self.join_secret.as_deref(), &self.cluster, self.shown.host())?;
        self.shown.renew(&newer)
    }

    /// What is wrong with it, for status.
    pub fn problem(&self, now_s: u64) -> Option<String> {
        let left_s = self.shown.expires_s() - i64::try_from(now_s).unwrap_or(i64::MAX);
        let file = self.join_secret.as_ref().map_or_else(|| "nothing".to_owned(), |path| path.display().to_string());
        (left_s < SOON_S).then(|| {
            format!(
                "the certificate of this host is good for {} days more, then nobody talks to it: a new one wants the join \
                 secret of the cluster in the file of --join-secret-file, which is {file}; restart the host with it",
                (left_s / DAY_S).max(0)
            )
        })
    }
}

/// The certificate of `host` that lies in its directory, if one does.
pub fn kept(dir: &Path, cluster: &Cluster, host: HostId) -> Option<Identity> {
    let text = std::fs::read_to_string(dir.join(FILE)).ok()?;
    let parts: [String; 3] = serde_json::from_str(&text).ok()?;
    let own = Identity::from_pem(&parts[0], &parts[1], &parts[2]).ok()?;
    (own.host() == host && own.cluster() == cluster.guid).then_some(own)
}

/// A new one, which lies there from now on.
fn issue(dir: &Path, join_secret: Option<&Path>, cluster: &Cluster, host: HostId) -> Result<Identity> {
    let Some(file) = join_secret else {
        let words = format!("cluster {} wants to hear its join secret: say --join-secret-file", cluster.name);
        return Err(Error::new(ErrorKind::Refused, words));
    };
    let secret = self::join_secret(file)?;
    let sealed = STANDARD.decode(&cluster.authority).map_err(|error| {
        Error::new(ErrorKind::Corrupt, format!("the authority in the coordinator is not base 64: {error}"))
    })?;
    let authority = Authority::open(&sealed, &secret).map_err(|error| error.within(file.display()))?;
    let own = authority.issue(host)?;
    write(dir, &own)?;
    Ok(own)
}

fn write(dir: &Path, own: &Identity) -> Result<()> {
    let text = serde_json::to_vec(&[own.certificate_pem(), own.key_pem(), own.ca().to_pem()]);
    braid_admin::write_private(&dir.join(FILE), &text.map_err(|e| Error::new(ErrorKind::Invalid, e.to_string()))?)
}

/// The secret in `file`.
pub fn join_secret(file: &Path) -> Result<String> {
    let text = std::fs::read_to_string(file).map_err(|error| Error::os(file.display(), &error))?;
    Ok(text.trim().to_owned())
}

fn now_s() -> i64 {
    braid_io::clock::now().wall.sec
}

#[cfg(test)]
mod tests {
    use braid_base::ids::Guid;
    use braid_cluster::facts::Protection;

    use super::*;

    const HOST: HostId = HostId(3);

    fn cluster(authority: &Authority, secret: &str) -> Cluster {
        Cluster {
            guid: authority.cluster(),
            name: "braid".to_owned(),
            created_s: 0,
            protection: Protection { data: 4, parity: 2 },
            shard_bytes: 1 << 20,
            partitions: 6,
            feature_level: 1,
            copies: 3,
            client_secret: String::new(),
            host_secret: String::new(),
            authority: STANDARD.encode(authority.seal(secret).expect("a secret")),
        }
    }

    #[test]
    fn a_certificate_is_replaced_while_the_host_runs() {
        let home = tempfile::tempdir().expect("dir");
        let (dir, file) = (home.path(), home.path().join("join-secret"));
        let (authority, secret) =
            (Authority::new(Guid([9; 16])).expect("made"), braid_wire::tls::join_secret().expect("made"));
        let cluster = cluster(&authority, &secret);
        let of = |file: Option<&Path>| Certificate::of(dir, file, &cluster, HOST);
        assert_eq!(of(None).err().map(|error| error.kind()), Some(ErrorKind::Refused));
        std::fs::write(&file, &secret).expect("written");
        let own = of(Some(&file)).expect("issued").expect("there is an authority");
        let kept_text = || std::fs::read_to_string(dir.join(FILE)).expect("kept");
        let (first, ends_s) = (kept_text(), own.identity().expires_s());
        assert_eq!(of(None).expect("kept").expect("kept").identity().expires_s(), ends_s, "good for long");

        own.look(ends_s - RENEW_S - 1);
        assert!(kept_text() == first, "nothing is due");
        // What it wants is not there: said, and tried again.
        std::fs::remove_file(&file).expect("there");
        own.look(ends_s - RENEW_S);
        assert!(kept_text() == first);
        let left = |days: i64| u64::try_from(ends_s - days * DAY_S).expect("in this century");
        assert_eq!(own.problem(left(31)), None);
        let words = own.problem(left(12)).expect("soon");
        assert!(words.contains("good for 12 days") && words.contains("join-secret"), "{words}");
        std::fs::write(&file, &secret).expect("written");
        own.look(ends_s - RENEW_S);
        assert!(kept_text() != first, "the newer one lies there");
        let again = kept(dir, &cluster, HOST).expect("whole");
        assert_eq!(again.expires_s(), own.identity().expires_s(), "and is shown");
        assert!(kept(dir, &cluster, HostId(4)).is_none(), "nobody else's");
        // One that is good for some days lets a host start without the secret.
        let short = authority.issue_for(HOST, now_s() - DAY_S, now_s() + 9 * DAY_S).expect("issued");
        write(dir, &short).expect("written");
        assert_eq!(of(None).expect("good enough").expect("kept").identity().expires_s(), short.expires_s());
        assert!(of(Some(&file)).expect("issued").expect("new").identity().expires_s() > now_s() + RENEW_S);
        // The clock was two days ahead when it was made, and was set right.
        let early = authority.issue_for(HOST, now_s() + DAY_S, now_s() + 300 * DAY_S).expect("issued");
        write(dir, &early).expect("written");
        assert!(of(None).is_err_and(|error| error.message().contains("--join-secret-file")));
        assert!(of(Some(&file)).expect("issued").expect("new").identity().begins_s() <= now_s());
    }

    #[test]
    fn a_cluster_without_an_authority_has_no_certificates() {
        let authority = Authority::new(Guid([9; 16])).expect("made");
        let cluster =
            Cluster { authority: String::new(), ..cluster(&authority, &braid_wire::tls::join_secret().expect("made")) };
        assert!(Certificate::of(Path::new("/nowhere"), None, &cluster, HOST).expect("nothing to do").is_none());
    }
}
