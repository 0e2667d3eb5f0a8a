//! The server on a free port, asked over HTTP as any tool would.

mod fake;

use std::sync::Arc;
use std::thread;

use braid_admin::{Access, ErrorBody, Server};
use fake::Fake;
use serde_json::{Value, json};

struct Running {
    url: String,
    token: String,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
    fake: Arc<Fake>,
}

impl Running {
    fn start() -> Self {
        let server = Server::bind(0).expect("a free port");
        let access = Access::new(server.port()).expect("access");
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let fake = Arc::new(Fake::new());
        let (control, token) = (fake.clone(), access.token.clone());
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
            let asked = server.stop_asked();
            let until = async move {
                tokio::select! { _ = asked => {}, _ = stopped => {} }
            };
            runtime.block_on(server.run(control, token, until)).expect("served");
        });
        Self { url: access.url, token: access.token, stop: Some(stop), thread: Some(thread), fake }
    }

    /// Status and body of one request.
    fn ask(&self, method: &str, path: &str, body: Option<Value>) -> (u16, String) {
        ask(&format!("{}{path}", self.url), Some(&self.token), method, body)
    }

    fn json(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let (status, text) = self.ask(method, path, body);
        (status, serde_json::from_str(&text).unwrap_or(Value::Null))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Gone already if the test asked for a shutdown over REST.
        let _ = self.stop.take().map(|stop| stop.send(()));
        if let Some(thread) = self.thread.take() {
            thread.join().expect("no panic in the server");
        }
    }
}

fn ask(url: &str, token: Option<&str>, method: &str, body: Option<Value>) -> (u16, String) {
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let mut request = ureq::http::Request::builder().method(method).uri(url);
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let text = body.map(|body| body.to_string()).unwrap_or_default();
    let request = request.header("content-type", "application/json").body(text).expect("a request");
    let mut response = agent.run(request).expect("an answer");
    (response.status().as_u16(), response.body_mut().read_to_string().expect("text"))
}

#[test]
fn nothing_without_the_token() {
    let running = Running::start();
    for path in ["/api/v1/status", "/api/v1/openapi.json", "/metrics", "/nowhere"] {
        let url = format!("{}{path}", running.url);
        for token in [None, Some(""), Some("wrong"), Some(&running.token[..63]), Some(&*format!("{}0", running.token))]
        {
            let (status, text) = ask(&url, token, "GET", None);
            assert_eq!(status, 401, "{path} {token:?}");
            let body: ErrorBody = serde_json::from_str(&text).expect("an error body");
            assert!(body.message.contains("admin.json"));
        }
    }
    assert_eq!(ask(&format!("{}/api/v1/shutdown", running.url), None, "POST", None).0, 401);
    assert_eq!(running.ask("GET", "/api/v1/status", None).0, 200, "still running");
}

#[test]
fn status_drives_partitions() {
    let running = Running::start();
    let (status, body) = running.json("GET", "/api/v1/status", None);
    assert_eq!((status, &body["state"], &body["problems"]), (200, &json!("ok"), &json!([])));
    assert_eq!(body["pid"], std::process::id());
    assert_eq!(body["drives"].as_array().map(Vec::len), Some(6));
    *running.fake.drive_2.lock().expect("not poisoned") = "missing".to_owned();
    let (_, body) = running.json("GET", "/api/v1/status", None);
    assert_eq!(
        (&body["state"], &body["problems"]),
        (&json!("degraded"), &json!(["drive d2 (/srv/drive-2) is missing"]))
    );
    assert_eq!(running.json("GET", "/api/v1/drives", None).1[1]["state"], "missing");
    assert_eq!(running.json("GET", "/api/v1/partitions", None).1[1]["id"], 1);
}

#[test]
fn hosts_and_drives_come_and_go() {
    let running = Running::start();
    let (status, hosts) = running.json("GET", "/api/v1/hosts", None);
    assert_eq!((status, &hosts[0]["failure_domain"], &hosts[0]["state"]), (200, &json!("box"), &json!("up")));
    let (status, hosts) = running.json("POST", "/api/v1/hosts", Some(json!({"names": ["two"]})));
    assert_eq!((status, &hosts[0]["name"]), (201, &json!("two")));
    assert_eq!(running.ask("DELETE", "/api/v1/hosts/two", None).0, 409);
    assert_eq!(running.ask("DELETE", "/api/v1/hosts/two?force=true", None).0, 204);
    let part = json!({"filesystem": "one", "inode": 77, "offset": 4096, "bytes": 8192, "why": "object missing",
        "store": "cold", "object": "B_1/key", "since_s": 1_700_000_000});
    assert_eq!(
        running.json("GET", "/api/v1/lost", None),
        (200, json!({"parts": [part], "more": false, "silent_partitions": [1], "unchecked_packs": 2}))
    );
    let set = json!({"rebuild_bytes_per_s": 5, "scrubber_bytes_per_s": 0});
    let (status, body) = running.json("PATCH", "/api/v1/settings", Some(set));
    let expected = json!({"rebuild_bytes_per_s": 5, "scrubber_bytes_per_s": 0, "hot_spares": 0});
    assert_eq!((status, &body), (200, &expected));
    running.json("PATCH", "/api/v1/settings", Some(json!({"rebuild_bytes_per_s": 0})));
    assert_eq!(running.json("GET", "/api/v1/settings", None).1["rebuild_bytes_per_s"], Value::Null);
    let spec = json!({"path": "/srv/drive-7", "size_bytes": 4_u64 << 30});
    let (status, drive) = running.json("POST", "/api/v1/drives", Some(spec));
    assert_eq!((status, &drive["id"], &drive["path"]), (201, &json!(7), &json!("/srv/drive-7")), "{drive}");
    assert_eq!(running.ask("DELETE", "/api/v1/drives/6", None).0, 409);
    assert_eq!(running.ask("DELETE", "/api/v1/drives/6?force=true", None).0, 204);
    assert_eq!(running.ask("DELETE", "/api/v1/drives/5?force=true", None).0, 204);
    assert_eq!(running.ask("DELETE", "/api/v1/drives/5?force=true&abandon=true", None).0, 409, "it answers");
    assert_eq!(running.ask("POST", "/api/v1/drives/6/activate", None).0, 204);
    let (status, body) = running.json("DELETE", "/api/v1/drives/9", None);
    assert_eq!((status, &body["kind"]), (404, &json!("not_found")), "{body}");
}

#[test]
fn file_systems_groups_and_mounts() {
    let running = Running::start();
    let add = json!({"name": "one", "total_bytes": 1 << 30});
    let (status, body) = running.json("POST", "/api/v1/filesystems", Some(add.clone()));
    assert_eq!((status, &body["name"], &body["total_bytes"]), (201, &json!("one"), &json!(1 << 30)));
    let (status, body) = running.json("POST", "/api/v1/filesystems", Some(add));
    assert_eq!((status, &body["kind"]), (409, &json!("exists")));
    let (status, body) =
        running.json("PATCH", "/api/v1/filesystems/one", Some(json!({"new_name": "zwölf", "total_bytes": 0})));
    assert_eq!((status, &body["name"], &body["limited"]), (200, &json!("zwölf"), &json!(false)));
    let (status, _) = running.ask("POST", "/api/v1/mounts", Some(json!({"filesystem": "zwölf", "path": "/mnt/a b"})));
    assert_eq!(status, 201);
    assert_eq!(running.json("GET", "/api/v1/mounts", None).1[0]["path"], "/mnt/a b");
    let (status, body) = running.json("DELETE", "/api/v1/filesystems/zw%C3%B6lf", None);
    assert_eq!((status, &body["kind"]), (409, &json!("refused")));
    assert_eq!(running.ask("DELETE", "/api/v1/mounts?path=%2Fmnt%2Fa%20b", None).0, 204);
    assert_eq!(running.ask("DELETE", "/api/v1/mounts?path=%2Fmnt%2Fa%20b", None).0, 404);
    assert_eq!(running.ask("DELETE", "/api/v1/filesystems/zw%C3%B6lf", None).0, 204);
    assert_eq!(running.json("GET", "/api/v1/filesystems", None).1, json!([]));
    let (status, _) = running.ask("POST", "/api/v1/groups", Some(json!({"name": "hot", "start_demote_s": 15})));
    assert_eq!(status, 201);
    let (_, body) = running.json("PATCH", "/api/v1/groups/hot", Some(json!({"name": "ignored", "new_name": "warm"})));
    assert_eq!((&body["name"], &body["start_demote_s"]), (&json!("warm"), &json!(15)));
    assert_eq!(running.ask("DELETE", "/api/v1/groups/warm", None).0, 204);
    assert_eq!(running.ask("DELETE", "/api/v1/groups/default", None).0, 409);
}

#[test]
fn object_stores() {
    let running = Running::start();
    let settings = json!({"hostname": "h", "bucket": "b/p", "access_key_id": "i", "secret_key": "very secret"});
    let add = json!({"name": "cold", "kind": "s3", "settings": settings, "dry_run": true});
    let (status, body) = running.json("POST", "/api/v1/object-stores", Some(add.clone()));
    assert_eq!((status, &body["recorded"], &body["steps"][0]["took_ms"]), (200, &json!(false), &json!(3)), "{body}");
    assert_eq!(running.json("GET", "/api/v1/object-stores", None), (200, json!([])));
    let mut add = add;
    add["dry_run"] = json!(false);
    let (status, body) = running.json("POST", "/api/v1/object-stores", Some(add));
    assert_eq!((status, &body["store"]["secret_key"]), (201, &json!("***")));
    let change = json!({"settings": {"prefetch_mib": 5}});
    let (status, body) = running.json("PATCH", "/api/v1/object-stores/cold", Some(change));
    assert_eq!((status, &body["store"]["prefetch_mib"], &body["steps"]), (200, &json!(5), &json!([])));
    running.json("POST", "/api/v1/filesystems", Some(json!({"name": "one"})));
    let (status, body) = running.json("POST", "/api/v1/filesystems/one/stores", Some(json!({"store": "cold"})));
    assert_eq!(
        (status, &body["stores"][0]["store"], &body["stores"][0]["mode"]),
        (201, &json!("cold"), &json!("writable"))
    );
    let (_, text) = running.ask("GET", "/api/v1/object-stores", None);
    let (status, body) = running.json("GET", "/api/v1/object-stores/cold/operations", None);
    let first = &body["operations"][0];
    assert_eq!((status, &first["type"], &first["phase"]), (200, &json!("DOWNLOAD"), &json!("Ongoing")));
    assert_eq!((&first["exec_time"], &body["silent_hosts"]), (&json!(1.25), &json!(["shed"])));
    assert_eq!(running.ask("GET", "/api/v1/object-stores/none/operations", None).0, 404);
    let (status, body) = running.json("POST", "/api/v1/object-stores/cold/audit", Some(json!({"remove": true})));
    assert_eq!((status, &body["state"], &body["remove"]), (202, &json!("running"), &json!(true)));
    let (status, body) = running.json("GET", "/api/v1/object-stores/cold/audit", None);
    assert_eq!((status, &body["state"], &body["unknown"]["keys"][0]), (200, &json!("done"), &json!("B_1/key")));
    assert_eq!(running.ask("GET", "/api/v1/object-stores/none/audit", None).0, 404);
    let (status, body) = running.json("GET", "/api/v1/holdings?filesystem=one", None);
    let (first, silent) = (&body["holdings"][0], &body["silent_partitions"]);
    assert_eq!((status, &first["consumed_bytes"], &first["store"]), (200, &json!(6000), &json!("cold")));
    assert_eq!((&first["reclaimable_percent"], silent), (&json!(20.0), &json!(1)));
    assert_eq!(running.json("GET", "/api/v1/holdings", None).1, body, "it is the only one");
    assert_eq!(running.ask("GET", "/api/v1/holdings?filesystem=none", None).0, 404);
    assert!(!text.contains("very secret") && text.contains("\"filesystems\":[\"one\"]"), "{text}");
    assert_eq!(running.ask("DELETE", "/api/v1/object-stores/cold", None).0, 409);
    let (status, body) = running.json("DELETE", "/api/v1/filesystems/one/stores/cold", None);
    assert_eq!((status, &body["stores"][0]["detaching"]), (202, &json!(true)));
    assert_eq!(running.ask("DELETE", "/api/v1/filesystems/one/stores/nothing", None).0, 404);
}

#[test]
fn events() {
    let running = Running::start();
    let (status, body) = running.json("GET", "/api/v1/events", None);
    let first = &body["events"][0];
    assert_eq!((status, &first["type"], &first["severity"]), (200, &json!("ObjectStoreStatusDown"), &json!("major")));
    assert_eq!((&first["category"], &first["count"]), (&json!("ObjectStorage"), &json!(3)));
    assert_eq!((&first["about"]["object_store"], &body["silent_hosts"]), (&json!("cold"), &json!(["shed"])));
    assert_eq!(running.ask("POST", "/api/v1/events", Some(json!({"text": "hello"}))).0, 204);
    let kinds = |query: &str| -> Vec<String> {
        let (status, body) = running.json("GET", &format!("/api/v1/events{query}"), None);
        assert_eq!(status, 200, "{body}");
        let events = body["events"].as_array().expect("a list").iter();
        events.map(|event| event["type"].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(kinds(""), ["Custom", "ObjectStoreStatusDown"]);
    assert_eq!(kinds("?direction=asc&num_results=1"), ["ObjectStoreStatusDown"]);
    assert_eq!(kinds("?severity=major&local=true"), ["ObjectStoreStatusDown"]);
    assert_eq!(kinds("?category=Custom,Drive"), ["Custom"]);
    assert_eq!(kinds("?type=Custom,DriveFailed&show_internal=true"), ["Custom"]);
    assert_eq!(kinds("?exclude_type=custom&start_time=1h"), ["ObjectStoreStatusDown"]);
    assert_eq!(kinds("?start_time=1m"), ["Custom"]);
    assert!(kinds("?filesystem=one").is_empty());
    let (status, types) = running.json("GET", "/api/v1/events/types", None);
    let custom = types.as_array().expect("a list").iter().find(|kind| kind["type"] == "Custom");
    assert_eq!((status, &custom.expect("there")["severity"]), (200, &json!("info")));
    let (_, document) = running.json("GET", "/api/v1/openapi.json", None);
    let parameters = document["paths"]["/api/v1/events"]["get"]["parameters"].as_array().expect("a list");
    assert_eq!(parameters.len(), 11);
    assert!(parameters.iter().all(|one| one["in"] == "query" && one["required"] != true), "{parameters:?}");
    assert!(parameters.iter().any(|one| one["name"] == "type"));
}

#[test]
fn mistakes_get_one_json_error() {
    let running = Running::start();
    for (method, path, body, expected) in [
        ("POST", "/api/v1/filesystems", Some(json!({"nam": "x"})), 400),
        ("POST", "/api/v1/filesystems", Some(json!("text")), 400),
        ("POST", "/api/v1/filesystems", None, 400),
        ("POST", "/api/v1/filesystems", Some(json!({"name": "x", "total_byte": 1})), 400),
        ("PATCH", "/api/v1/settings", Some(json!({"hot_spare": 1})), 400),
        ("PATCH", "/api/v1/settings", Some(json!({"hot_spares": 1})), 400),
        ("DELETE", "/api/v1/drives/six", None, 400),
        ("DELETE", "/api/v1/filesystems/%FF", None, 400),
        ("DELETE", "/api/v1/mounts", None, 400),
        ("DELETE", "/api/v1/hosts/x?force=perhaps", None, 400),
        ("POST", "/api/v1/object-stores", Some(json!({"name": "x", "kind": "tape", "settings": {}})), 400),
        ("POST", "/api/v1/object-stores", Some(json!({"name": "x", "kind": "dir", "settings": {"paht": "/d"}})), 400),
        ("POST", "/api/v1/object-stores", Some(json!({"name": "x", "kind": "dir", "settings": {"path": "d"}})), 400),
        ("PUT", "/api/v1/filesystems", None, 405),
        ("GET", "/api/v1/events?typ=Custom", None, 400),
        ("GET", "/api/v1/events?type=Costum", None, 400),
        ("POST", "/api/v1/events", Some(json!({"text": ""})), 400),
        ("GET", "/api/v1/nothing", None, 404),
    ] {
        let (status, text) = running.ask(method, path, body);
        let error: ErrorBody = serde_json::from_str(&text).expect("an error body");
        assert_eq!(status, expected, "{method} {path}: {error:?}");
        assert!(!error.message.is_empty() && !error.message.contains('\n'));
    }
}

#[test]
fn the_document_describes_every_route() {
    let running = Running::start();
    let (_, document) = running.json("GET", "/api/v1/openapi.json", None);
    let known = document["paths"].as_object().expect("paths");
    let paths: Vec<&String> = known.keys().collect();
    let names = known.values().flat_map(|path| path.as_object().expect("methods").values());
    let mut names: Vec<&str> = names.map(|call| call["operationId"].as_str().expect("a name")).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all, "names of operations are unique: {names:?}");
    let expected = [
        "/api/v1/clients",
        "/api/v1/drives",
        "/api/v1/drives/{id}",
        "/api/v1/drives/{id}/activate",
        "/api/v1/events",
        "/api/v1/events/types",
        "/api/v1/filesystems",
        "/api/v1/filesystems/{name}",
        "/api/v1/filesystems/{name}/stores",
        "/api/v1/filesystems/{name}/stores/{store}",
        "/api/v1/groups",
        "/api/v1/groups/{name}",
        "/api/v1/holdings",
        "/api/v1/hosts",
        "/api/v1/hosts/{name}",
        "/api/v1/lost",
        "/api/v1/mounts",
        "/api/v1/object-stores",
        "/api/v1/object-stores/{name}",
        "/api/v1/object-stores/{name}/audit",
        "/api/v1/object-stores/{name}/operations",
        "/api/v1/partitions",
        "/api/v1/settings",
        "/api/v1/shutdown",
        "/api/v1/status",
        "/metrics",
    ];
    assert_eq!(paths, expected);
    for schema in ["Status", "DriveView", "FilesystemView", "State", "ErrorBody", "FsSpec"] {
        assert!(document["components"]["schemas"][schema].is_object(), "{schema} is described");
    }
    assert!(document["components"]["securitySchemes"]["token"].is_object());
}

#[test]
fn metrics_are_prometheus_text() {
    let running = Running::start();
    let (status, text) = running.ask("GET", "/metrics", None);
    assert_eq!(status, 200);
    for line in [
        "# TYPE braid_requests_total counter",
        "braid_requests_total{op=\"lookup\"} 7",
        "braid_requests_total{op=\"odd\\\"one\\\\\"} 2.5",
        "braid_up 1",
        "braid_state 0",
        "braid_capacity_net_bytes 15461882265",
        "braid_lost_packs 3",
        "braid_drive_lost{drive=\"2\",state=\"active\"} 0",
        "braid_partition_term{partition=\"1\"} 3",
    ] {
        assert!(text.lines().any(|found| found == line), "{line:?} expected in:\n{text}");
    }
    assert_eq!(text.matches("# TYPE braid_drive_lost ").count(), 1, "one header per name");
}

#[test]
fn shutdown_ends_the_server() {
    let mut running = Running::start();
    assert_eq!(running.ask("POST", "/api/v1/shutdown", None).0, 202);
    running.thread.take().expect("started").join().expect("it ends by itself");
}

#[test]
fn a_port_in_use_is_refused() {
    let first = Server::bind(0).expect("a free port");
    let error = Server::bind(first.port()).err().expect("in use");
    assert_eq!(error.kind(), braid_base::ErrorKind::Refused);
    assert!(error.message().contains(&first.port().to_string()) && error.message().contains("--admin-port"));
}
