//! The same objects from files, on a node without Kubernetes.

use hooks::tracing::Policy;
use tempfile::TempDir;

use super::sampling::edge;
use super::*;

const HEAD: &str = "apiVersion: uview.dev/v1alpha1\n";

/// A node with the services `cart` and `payment`, and a folder of files.
struct OnDisk {
    node: Arc<Node>,
    objects: Arc<CustomObjects>,
    folder: TempDir,
    _regions: Vec<FilledRegion>,
}

impl OnDisk {
    fn start(edge: Option<Arc<Edge>>, files: &[(&str, &str)]) -> Self {
        let mut settings = Settings::new(Incarnation(1), Interval::new(Nanos::from_secs(1)).unwrap());
        let bound = |millis| Interval::new(Nanos::from_millis(millis)).unwrap();
        settings.operator_bounds = (bound(10), bound(60_000));
        let node = Arc::new(Node::new(settings, 4, Clock::start(), None));
        let regions = ["cart", "payment"].map(|name| replica_of(name, name, &node)).into();
        let short = Duration::from_millis(5);
        let pace = Pace { look: short, again: short, settle: short, write: short, files: short };
        let objects = Arc::new(CustomObjects::new("resources", String::new(), pace));
        objects.set_edge(edge);
        let folder = tempfile::tempdir().unwrap();
        let on_disk = Self { node, objects, folder, _regions: regions };
        for (name, text) in files {
            on_disk.write(name, text);
        }
        let (of, node, path) =
            (Arc::clone(&on_disk.objects), Arc::clone(&on_disk.node), on_disk.folder.path().to_owned());
        tokio::spawn(async move { run_from_files(&path, &of, &node).await });
        on_disk
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), text).unwrap();
    }

    fn remove(&self, name: &str) {
        std::fs::remove_file(self.folder.path().join(name)).unwrap();
    }

    fn interval_ms(&self, service: &str) -> Option<u64> {
        interval_ms(&self.node, service)
    }

    #[track_caller]
    fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) -> impl Future<Output = ()> {
        WAIT.until_async(what, async move || holds(self).then_some(()).ok_or(&self.objects))
    }

    /// Whether the status has a line with `part`.
    fn says(&self, part: &str) -> bool {
        self.objects.problems().iter().any(|line| line.contains(part))
    }
}

fn fast(name: &str, service: &str, interval: &str) -> String {
    format!(
        "{HEAD}kind: Lmap\nmetadata: {{name: {name}}}\nspec: {{workload: {{name: {service}}}, interval: {interval}}}\n"
    )
}

#[tokio::test]
async fn objects_of_files_are_applied_changed_and_gone() {
    let edge = edge("{keep: tail}");
    let quiet = format!(
        "{}---\n{HEAD}kind: SamplingPolicy\nmetadata: {{name: quiet}}\nspec:\n  workload: {{name: cart}}\n  reasons: []\n",
        fast("a", "cart", "200ms")
    );
    let files = [("cart.yaml", quiet.as_str()), ("notes.txt", "no YAML: ["), (".hidden.yaml", "[")];
    let on_disk = OnDisk::start(Some(Arc::clone(edge.edge())), &files);
    let is_off = || edge.edge().with_tail(|tail, _| tail.policies().services().is_off("cart", Policy::Error));

    on_disk.until("the interval is set", |of| of.interval_ms("cart") == Some(200)).await;
    on_disk.until("the policy is in effect", |_| is_off() == Some(true)).await;
    assert_eq!(on_disk.interval_ms("payment"), Some(1000));
    assert_eq!(on_disk.objects.problems(), Vec::<String>::new());

    on_disk.write("cart.yaml", &fast("a", "cart", "500ms"));
    on_disk.until("it is changed", |of| of.interval_ms("cart") == Some(500)).await;
    on_disk.until("the policy is gone", |_| is_off() == Some(false)).await;
    on_disk.remove("cart.yaml");
    on_disk.until("it is as configured", |of| of.interval_ms("cart") == Some(1000)).await;
}

#[tokio::test]
async fn a_file_that_makes_no_sense_keeps_what_it_said_and_hides_no_other() {
    let on_disk = OnDisk::start(None, &[("cart.yaml", &fast("a", "cart", "200ms"))]);
    on_disk.until("the interval is set", |of| of.interval_ms("cart") == Some(200)).await;

    on_disk.write("cart.yaml", "apiVersion: [");
    on_disk.write("payment.yml", &fast("b", "payment", "300ms"));

    on_disk.until("the other file counts", |of| of.interval_ms("payment") == Some(300)).await;
    on_disk.until("the file is named", |of| of.says("resources: cart.yaml: ")).await;
    assert!(on_disk.says("what the file said before stays in effect"));
    assert_eq!(on_disk.interval_ms("cart"), Some(200));

    on_disk.write("cart.yaml", &fast("a", "payment", "400ms"));
    on_disk.until("the first file has the say", |of| of.interval_ms("payment") == Some(400)).await;
    on_disk
        .until("the other one is told", |of| of.says("Lmap b: payment is set by the older Lmap a: delete one"))
        .await;
    assert_eq!(on_disk.interval_ms("cart"), Some(1000), "nothing is left of what the file said before");
}

#[tokio::test]
async fn a_folder_that_cannot_be_read_is_named_until_it_can() {
    let on_disk = OnDisk::start(None, &[("cart.yaml", &fast("a", "cart", "200ms"))]);
    on_disk.until("the interval is set", |of| of.interval_ms("cart") == Some(200)).await;
    let (path, away) = (on_disk.folder.path().to_owned(), on_disk.folder.path().with_extension("away"));

    std::fs::rename(&path, &away).unwrap();
    on_disk.until("it is named", |of| of.says("resources: cannot read")).await;
    assert_eq!(on_disk.interval_ms("cart"), Some(200));
    std::fs::rename(&away, &path).unwrap();
    on_disk.until("that is over", |of| of.objects.problems().is_empty()).await;

    on_disk.write("large.yaml", &"#".repeat(resources::files::MAX_FILE_BYTES as usize));
    on_disk.until("its size is named", |of| of.says("bytes of YAML files, at most 2097152 are read")).await;
}
