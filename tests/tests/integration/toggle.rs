//! Switching: the byte in the process is what counts, and no request is harmed.

use crate::rig::{Rig, SOON};
use runtime_core_abi::page::Owner;
use std::time::{Duration, Instant};
use tracebyte_tests::{Server, ServerOptions, eventually, together};

#[test]
fn on_sets_the_operators_byte_before_it_returns() {
    let _held = together();
    let rig = Rig::start();
    let page = rig.server.memory().shared_page().unwrap();
    assert_eq!(page.node_http(Owner::Operator).unwrap(), 0);
    rig.on();
    assert_ne!(page.node_http(Owner::Operator).unwrap(), 0);
    assert_eq!(page.node_http(Owner::Process).unwrap(), 0);
    let category = &rig.listed()["categories"][0];
    assert_eq!((&category["name"], &category["enabled"]), (&"node.http".into(), &true.into()));
    assert_eq!(category["by"], serde_json::json!(["operator"]));
    rig.off();
    assert_eq!(page.node_http(Owner::Operator).unwrap(), 0);
    let category = &rig.listed()["categories"][0];
    assert_eq!((&category["enabled"], &category["by"]), (&false.into(), &serde_json::json!([])));
}

#[test]
fn off_without_a_category_switches_all_off() {
    let _held = together();
    let rig = Rig::start();
    rig.on();
    rig.agent.tracebyte(&["trace", "off", "--all"]).ok();
    assert_eq!(rig.server.memory().shared_page().unwrap().node_http(Owner::Operator).unwrap(), 0);
}

#[test]
fn a_time_limit_ends_by_itself() {
    let _held = together();
    let rig = Rig::start();
    let page = rig.server.memory().shared_page().unwrap();
    let begin = Instant::now();
    rig.agent.tracebyte(&["trace", "on", "node.http", "--pid", &rig.pid(), "--for", "400ms"]).ok();
    assert_ne!(page.node_http(Owner::Operator).unwrap(), 0);
    eventually(SOON, "off by itself", || page.node_http(Owner::Operator).unwrap() == 0);
    assert!(begin.elapsed() >= Duration::from_millis(400), "off after {:?}", begin.elapsed());
}

#[test]
fn a_service_is_all_of_its_processes_and_no_other() {
    let _held = together();
    let rig = Rig::start();
    let others: Vec<Server> = (0..2).map(|_| Server::start(&rig.sandbox, &ServerOptions::named("shop"))).collect();
    for other in &others {
        rig.agent.wait_for_target(other.pid());
    }
    rig.agent.tracebyte(&["trace", "on", "node.http", "--service", "shop"]).ok();
    let byte = |server: &Server| server.memory().shared_page().unwrap().node_http(Owner::Operator).unwrap();
    assert_eq!(byte(&rig.server), 0);
    assert!(others.iter().all(|other| byte(other) != 0));
    rig.agent.tracebyte(&["trace", "on", "node.http", "--all"]).ok();
    assert_ne!(byte(&rig.server), 0);
}

#[test]
fn a_storm_of_toggles_harms_no_request() {
    let _held = together();
    let rig = Rig::start();
    let load = rig.load();
    for _ in 0..60 {
        rig.on();
        rig.off();
    }
    let counts = load.stop().unharmed();
    assert!(counts.answered > 100, "{counts:?}");
    assert_eq!(rig.agent.metric("tracebyte_trace_toggles_total", &[]), Some(120.0));
}

#[test]
fn status_reads_the_live_bytes() {
    let _held = together();
    let rig = Rig::start();
    rig.on();
    let status = rig.agent.tracebyte(&["trace", "status", "--json"]).ok().json();
    let shown = status.as_array().unwrap().iter().find(|target| target["pid"] == rig.server.pid()).unwrap();
    assert_eq!(shown, &rig.listed());
    assert_eq!(shown["kind"], "runtime-core");
    assert_eq!(shown["service"], "demo");
    assert!(shown["start_time"].as_u64().unwrap() > 0);
    assert_eq!(shown["categories"][0]["enabled"], true);
}
