//! What `/metrics` shows. No label has an unbounded number of values: services beyond the
//! bound share `other`, and the series of a service that is gone make room for a new one.

use super::Lost;
use super::durations::{METHOD_OTHER, Request};
use crate::target::{KIND, Target};
use prometheus::core::Collector;
use prometheus::{
    Encoder, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry,
    TextEncoder,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

/// The label of what is beyond a bound.
const OTHER: &str = "other";
/// Categories a service has series for; the rest share `other`.
const CATEGORIES_MAX: usize = 32;
/// Combinations of method, status and route a service has series for.
const REQUESTS_MAX: usize = 256;
/// From 10 µs to 10 s.
const BUCKETS: [f64; 19] = [
    1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// Every metric of the agent.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    services: Mutex<HashMap<String, Arc<Service>>>,
    services_max: usize,
    targets: IntGaugeVec,
    enabled: IntGaugeVec,
    events: IntCounterVec,
    lost: IntCounterVec,
    malformed: IntCounterVec,
    durations: HistogramVec,
    /// Categories switched on or off.
    pub toggles: IntCounter,
    /// Requests whose end will not be recognised, for want of room.
    pub requests_forgotten: IntCounter,
    /// Samples taken by profiles.
    pub profile_samples: IntCounter,
    /// Samples lost by profiles.
    pub profile_samples_lost: IntCounter,
    /// Registrations that came to nothing, by reason.
    pub refused: IntCounterVec,
    /// Control requests that were refused or failed.
    pub control_errors: IntCounter,
}

/// What is known of a service's series. They stay after its last process, until another
/// service needs the room.
#[derive(Debug)]
struct Service {
    name: String,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    categories: HashMap<String, IntCounter>,
    /// By route, then by method and status; looked up without an allocation.
    requests: HashMap<String, HashMap<(&'static str, Option<u16>), Histogram>>,
    request_series: usize,
}

/// A handle on a service's series.
#[derive(Clone, Debug)]
pub struct ServiceLabel {
    service: Arc<Service>,
    metrics: Arc<Metrics>,
}

impl Metrics {
    /// Metrics of at most `services_max` services by name. Where `profiles` cannot be had
    /// their series are absent: a 0 would say that something was measured.
    pub fn new(services_max: usize, profiles: bool) -> Arc<Self> {
        let registry = Registry::new();
        let nowhere = Registry::new();
        let of_profiles = if profiles { &registry } else { &nowhere };
        let metrics = Self {
            services: Mutex::default(),
            services_max,
            targets: gauges(&registry, "tracebyte_targets", "Processes that can be traced.", &["kind"]),
            enabled: gauges(
                &registry,
                "tracebyte_trace_enabled",
                "Processes of the service in which the category is on.",
                &["service", "category"],
            ),
            events: counters(
                &registry,
                "tracebyte_trace_events_total",
                "Trace events received.",
                &["service", "category"],
            ),
            lost: counters(
                &registry,
                "tracebyte_trace_events_lost_total",
                "Trace events lost in the process: its ring was full, or its thread had none.",
                &["service"],
            ),
            malformed: counters(
                &registry,
                "tracebyte_trace_events_malformed_total",
                "Times the bytes in an event ring made no sense and were dropped.",
                &["service"],
            ),
            durations: HistogramVec::new(
                HistogramOpts::new(
                    "http_server_request_duration_seconds",
                    "Duration of HTTP requests served, from their trace events.",
                )
                .buckets(BUCKETS.to_vec()),
                &["service", "http_request_method", "http_response_status_code", "http_route"],
            )
            .expect("a valid metric"),
            toggles: counter(&registry, "tracebyte_trace_toggles_total", "Categories switched on or off."),
            requests_forgotten: counter(
                &registry,
                "tracebyte_requests_forgotten_total",
                "Requests in flight that were forgotten for want of room, hence have no duration.",
            ),
            profile_samples: counter(of_profiles, "tracebyte_profile_samples_total", "Samples taken by profiles."),
            profile_samples_lost: counter(
                of_profiles,
                "tracebyte_profile_samples_lost_total",
                "Samples that profiles took and lost.",
            ),
            refused: counters(
                &registry,
                "tracebyte_registrations_refused_total",
                "Registrations that came to nothing.",
                &["reason"],
            ),
            control_errors: counter(
                &registry,
                "tracebyte_control_errors_total",
                "Control requests that were refused or failed.",
            ),
            registry,
        };
        register(&metrics.registry, metrics.durations.clone());
        register(&metrics.registry, prometheus::process_collector::ProcessCollector::for_self());
        let build = gauges(&metrics.registry, "tracebyte_build_info", "Always 1; what is running.", &["version"]);
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        Arc::new(metrics)
    }

    /// The series of a service, shared by its targets.
    pub fn service(self: &Arc<Self>, name: &str) -> ServiceLabel {
        let mut services = self.lock();
        if services.len() >= self.services_max && !services.contains_key(name) {
            // One that nobody but this table knows has no process left.
            let gone = services.values().find(|service| service.name != OTHER && Arc::strong_count(service) == 1);
            if let Some(gone) = gone.map(|service| service.name.clone()).and_then(|name| services.remove(&name)) {
                self.remove_series(&gone);
            }
        }
        let full = services.len() >= self.services_max && !services.contains_key(name);
        let name = if full { OTHER } else { name };
        let service = services
            .entry(name.to_owned())
            .or_insert_with(|| Arc::new(Service { name: name.into(), seen: Mutex::default() }));
        // So that a rate is known from the first event on.
        self.lost.with_label_values(&[name]);
        ServiceLabel { service: Arc::clone(service), metrics: Arc::clone(self) }
    }

    /// All metrics in Prometheus's text format. What depends on the targets is read from
    /// their live bytes now.
    pub fn render(&self, targets: &[Arc<Target>]) -> Vec<u8> {
        let mut enabled: BTreeMap<(String, String), i64> = BTreeMap::new();
        for target in targets {
            let label = target.service_label();
            for category in target.info().categories {
                let name = label.category_label(&category.name);
                *enabled.entry((label.service.name.clone(), name)).or_default() += i64::from(category.enabled);
            }
        }
        // Held so that two scrapes do not mix their gauges.
        let _one_at_a_time = self.lock();
        self.targets.with_label_values(&[KIND]).set(targets.len() as i64);
        self.enabled.reset();
        for ((service, category), count) in enabled {
            self.enabled.with_label_values(&[&service, &category]).set(count);
        }
        let mut out = Vec::new();
        if let Err(error) = TextEncoder::new().encode(&self.registry.gather(), &mut out) {
            tracing::error!(%error, "cannot encode the metrics");
        }
        out
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Service>>> {
        self.services.lock().expect("no panic while the services are locked")
    }

    fn remove_series(&self, service: &Service) {
        let (name, seen) = (service.name.as_str(), service.seen());
        // What was never made cannot be removed, which is as good.
        for category in seen.categories.keys() {
            let _ = self.events.remove_label_values(&[name, category]);
        }
        for (route, of_route) in &seen.requests {
            for (method, status) in of_route.keys() {
                let _ = self.durations.remove_label_values(&[name, method, &status_label(*status), route]);
            }
        }
        let _ = self.lost.remove_label_values(&[name]);
        let _ = self.malformed.remove_label_values(&[name]);
    }
}

impl Seen {
    fn has(&self, (route, series): &(&str, (&'static str, Option<u16>))) -> bool {
        self.requests.get(*route).is_some_and(|of_route| of_route.contains_key(series))
    }
}

/// A status code as a label; what is none is [`OTHER`].
fn status_label(status: Option<u16>) -> String {
    status.map_or_else(|| OTHER.to_owned(), |code| code.to_string())
}

impl Service {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("no panic while a service's series are locked")
    }
}

impl ServiceLabel {
    /// Counts an event.
    pub fn count_event(&self, category: &str) {
        self.with_category(category, |_, counter| counter.inc());
    }

    /// Counts what was lost.
    pub fn count_lost(&self, lost: &Lost) {
        let name = [self.service.name.as_str()];
        let in_process = lost.ring_full.saturating_add(lost.no_lane);
        if in_process > 0 {
            self.metrics.lost.with_label_values(&name).inc_by(in_process);
        }
        if lost.malformed > 0 {
            self.metrics.malformed.with_label_values(&name).inc_by(lost.malformed);
        }
    }

    /// Observes a request. Beyond the bound its series is the one of everything else.
    pub fn observe(&self, request: &Request<'_>) {
        let mut seen = self.service.seen();
        let mut series = (request.route, (request.method, request.status));
        if !seen.has(&series) && seen.request_series >= REQUESTS_MAX {
            series = (OTHER, (METHOD_OTHER, None));
        }
        if !seen.has(&series) {
            seen.request_series += 1;
        }
        let (route, (method, status)) = series;
        if !seen.requests.contains_key(route) {
            seen.requests.insert(route.to_owned(), HashMap::new());
        }
        let Some(of_route) = seen.requests.get_mut(route) else { return };
        let histogram = of_route.entry((method, status)).or_insert_with(|| {
            let labels = [self.service.name.as_str(), method, &status_label(status), route];
            self.metrics.durations.with_label_values(&labels)
        });
        histogram.observe(request.seconds);
    }

    /// What a category is called in the metrics.
    fn category_label(&self, category: &str) -> String {
        self.with_category(category, |name, _| name.to_owned())
    }

    fn with_category<T>(&self, category: &str, then: impl FnOnce(&str, &IntCounter) -> T) -> T {
        let mut seen = self.service.seen();
        let full = seen.categories.len() >= CATEGORIES_MAX && !seen.categories.contains_key(category);
        let category = if full { OTHER } else { category };
        if !seen.categories.contains_key(category) {
            let counter = self.metrics.events.with_label_values(&[self.service.name.as_str(), category]);
            seen.categories.insert(category.to_owned(), counter);
        }
        then(category, &seen.categories[category])
    }
}

fn register(registry: &Registry, collector: impl Collector + 'static) {
    registry.register(Box::new(collector)).expect("every metric has a name of its own");
}

fn counter(registry: &Registry, name: &str, help: &str) -> IntCounter {
    let counter = IntCounter::new(name, help).expect("a valid metric");
    register(registry, counter.clone());
    counter
}

fn counters(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    let counters = IntCounterVec::new(Opts::new(name, help), labels).expect("a valid metric");
    register(registry, counters.clone());
    counters
}

fn gauges(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
    let gauges = IntGaugeVec::new(Opts::new(name, help), labels).expect("a valid metric");
    register(registry, gauges.clone());
    gauges
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(metrics: &Metrics) -> String {
        String::from_utf8(metrics.render(&[])).unwrap()
    }

    #[test]
    fn services_beyond_the_bound_share_other_and_make_room() {
        let metrics = Metrics::new(2, true);
        let (a, b) = (metrics.service("a"), metrics.service("b"));
        let c = metrics.service("c");
        [&a, &b, &c].iter().for_each(|label| label.count_event("node.http"));
        let text = shown(&metrics);
        assert!(text.contains(r#"events_total{category="node.http",service="other"} 1"#), "{text}");
        drop(a);
        let d = metrics.service("d");
        d.count_event("node.http");
        let text = shown(&metrics);
        assert!(!text.contains(r#"service="a""#) && text.contains(r#"service="b""#), "{text}");
    }

    #[test]
    fn series_are_bounded_whatever_a_process_writes() {
        let metrics = Metrics::new(2, true);
        let label = metrics.service("wild");
        for n in 0..10_000 {
            label.count_event(&format!("category{n}"));
            let route = format!("/{n}\n\"");
            label.observe(&Request { method: "GET", status: Some(200), route: &route, seconds: 0.001 });
        }
        let text = shown(&metrics);
        assert!(text.lines().count() < 30 * (CATEGORIES_MAX + REQUESTS_MAX + 10), "{}", text.lines().count());
        let rest = format!(r#"http_route="other",service="wild"}} {}"#, 10_000 - REQUESTS_MAX);
        assert!(text.contains(&rest), "{text}");
    }

    #[test]
    fn the_agents_own_metrics_are_there() {
        let text = shown(&Metrics::new(1, true));
        for name in ["tracebyte_build_info{version=", "tracebyte_targets{kind=\"runtime-core\"} 0", "process_open_fds"]
        {
            assert!(text.contains(name), "{name} in {text}");
        }
    }
}
