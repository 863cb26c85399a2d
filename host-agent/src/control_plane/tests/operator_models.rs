//! Models that operators give to LMAPs that run, and take back.

use wire::metric::fingerprint;

use super::super::testing::{counter, gauge, histogram};
use super::*;

/// The columns of the service here.
const TITLES: [&str; 5] = ["a", "b", "c.count", "c.mean", "c.p99"];

fn interval(millis: u64) -> Interval {
    Interval::new(Nanos::from_millis(millis)).unwrap()
}

/// A small model of these columns; of rows every `millis`, 0: it does not say.
fn model(titles: &[&str], millis: u64) -> TrainedModel {
    let column = |title: &&str| ::lmap::Column::new(::lmap::ColumnKind::Gauge, fingerprint(title));
    let columns = titles.iter().map(column).collect();
    let mut detector = ::lmap::Detector::new(columns, ::lmap::Settings::default(), 1).unwrap();
    let mut row = 0_u64;
    while detector.model().is_none() {
        row += 1;
        let value = |column: usize| 1000.0 + (row * (column as u64 + 7) * 7919 % 101) as f64;
        let _ = detector.score(&(0..titles.len()).map(value).collect::<Vec<_>>()).unwrap();
        if let Some(job) = detector.learn() {
            detector.install(job.run());
        }
    }
    let model = detector.model().unwrap().of_rows_every(millis as f64 / 1000.0);
    TrainedModel::new(model.encode()).unwrap()
}

/// A node whose worker runs the LMAP of cart, a row every 100 ms.
fn running() -> (Node, LmapId) {
    let mut settings = settings();
    settings.operator_bounds = (interval(10), interval(60_000));
    let mut node = Node::new(settings);
    node.worker(50, 0, 1);
    node.replica(1, "cart", &[counter("a"), gauge("b"), histogram("c")]);
    node.settle();
    assert_eq!(node.set(50).len(), 1);
    let id = node.only_lmap();
    (node, id)
}

impl Node {
    fn give(&mut self, id: LmapId, model: &TrainedModel, by: &str) -> Result<ModelFit, OperatorError> {
        self.plane.set_model(self.now, id, model.clone(), by)
    }

    /// The only configuration that the worker is sent now.
    fn configured(&mut self) -> proto::Lmap {
        self.settle();
        let mut sent = self.set(50);
        assert_eq!(sent.len(), 1, "{sent:?}");
        sent.pop().unwrap().1
    }

    /// Who gave the model of the only LMAP, and whether it is unused.
    fn model_of_status(&self) -> (String, bool) {
        let status = self.plane.status().lmaps.pop().unwrap();
        (status.model_by, status.model_unused)
    }
}

#[test]
fn a_model_goes_to_the_worker_that_runs_the_lmap_and_stays_when_its_replicas_go() {
    let (mut node, id) = running();
    let model = model(&TITLES, 100);

    let fit = node.give(id, &model, "user 7").unwrap();

    let perfect = ModelFit { columns: 5, unknown: 0, examples: Vec::new(), is_running: true };
    assert_eq!(fit, perfect);
    let configured = node.configured();
    assert_eq!((configured.lmap, &configured.model, configured.learnt.len()), (id.0, &model.to_vec(), 0));
    assert_eq!(node.model_of_status(), ("user 7".to_owned(), false));
    assert_eq!(node.plane.model_bytes(), model.bytes() as u64);

    node.gone(1);
    node.settle();
    node.replica(2, "cart", &[counter("a")]);
    assert_eq!(node.configured().model, model.to_vec());
    // Without it, nothing keeps the LMAP of a service that is gone.
    node.gone(2);
    assert_eq!(node.only_lmap(), id);
    node.give(id, &TrainedModel::default(), "user 7").unwrap();
    assert!(node.plane.list().lmaps.is_empty() && node.plane.model_bytes() == 0);
}

#[test]
fn a_model_that_is_taken_back_leaves_what_was_learnt_before_to_the_worker() {
    let (mut node, id) = running();
    let learnt = proto::LearntModel { lmap: id.0, epoch: 0, model: vec![7; 9], interval_us: 100_000 };
    node.receive(50, FromWorker::LearntModel(learnt));
    node.give(id, &model(&TITLES, 100), "user 7").unwrap();
    assert!(node.configured().learnt.is_empty(), "the operator's goes first");
    // A worker has nothing to hand over of detectors that judge by a file.
    node.receive(50, FromWorker::LearntModel(proto::LearntModel { lmap: id.0, ..Default::default() }));

    node.give(id, &TrainedModel::default(), "user 8").unwrap();

    let configured = node.configured();
    assert_eq!((configured.model.len(), configured.learnt, configured.continues), (0, vec![7; 9], true));
    assert_eq!((node.model_of_status(), node.plane.model_bytes()), ((String::new(), false), 0));
    node.series(1, counter("d"), 200);
    assert!(node.configured().learnt.is_empty(), "it has that now");
}

#[test]
fn a_model_that_does_not_fit_is_refused_with_why_and_changes_nothing() {
    let (mut node, id) = running();
    let first = model(&TITLES, 100);
    node.give(id, &first, "user 8").unwrap();
    node.configured();
    node.plane.models.add("user 7".to_owned(), 200 << 20);

    let foreign = node.give(id, &model(&["a", "x", "y"], 100), "user 7").unwrap_err();
    let slow = node.give(id, &model(&TITLES, 1_000), "user 7").unwrap_err();
    let over_share = node.give(id, &model(&TITLES, 100), "user 7").unwrap_err();
    let nobody = node.give(LmapId(99), &first, "user 8").unwrap_err();

    let texts = [&foreign, &slow].map(ToString::to_string);
    assert!(texts[0].contains("not know 4 of the 5 columns of cart, such as b, c.count, c.mean,"), "{foreign}");
    assert!(texts[1].contains("of rows every 1s, and cart has one every 100ms"), "{slow}");
    assert!(texts[1].contains("`uview lmap cart --interval 1000ms`"), "{slow}");
    assert!(matches!(over_share, OperatorError::Share(_)), "{over_share}");
    assert_eq!(nobody, OperatorError::NoLmap(LmapId(99)));
    node.settle();
    assert!(node.set(50).is_empty());
    assert_eq!(node.model_of_status(), ("user 8".to_owned(), false));
    assert_eq!(node.plane.models.held(&"user 8".to_owned()), first.bytes() as u64);
}

#[test]
fn columns_that_a_model_does_not_know_are_named_if_it_knows_most_of_them() {
    let (mut node, id) = running();

    let fit = node.give(id, &model(&["c.p99", "b", "a", "elsewhere"], 0), "user 7").unwrap();

    let unknown = ["c.count", "c.mean"].map(str::to_owned).to_vec();
    assert_eq!(fit, ModelFit { columns: 5, unknown: 2, examples: unknown, is_running: true });
}

#[test]
fn another_model_takes_the_place_of_the_first_and_of_its_share() {
    let (mut node, id) = running();
    let (first, second) = (model(&TITLES, 100), model(&TITLES[..4], 100));
    node.give(id, &first, "user 7").unwrap();
    node.give(id, &second, "user 8").unwrap();

    assert_eq!(node.configured().model, second.to_vec());
    let held = ["user 7", "user 8"].map(|by| node.plane.models.held(&by.to_owned()));
    assert_eq!(held, [0, second.bytes() as u64]);
    node.plane.delete_lmap(node.now, id).unwrap();
    assert_eq!(node.plane.model_bytes(), 0);
}

#[test]
fn a_model_judges_at_its_own_interval_and_at_no_other() {
    // One that does not say of which rows it is was of those of the time when it was given.
    for millis in [100, 0] {
        let (mut node, id) = running();
        let model = model(&TITLES, millis);
        node.give(id, &model, "user 7").unwrap();
        node.configured();
        node.armed(50, &[id.0]);
        let change = |millis| IntervalChange {
            interval: Some(IntervalChoice::Of(interval(millis))),
            ..IntervalChange::default()
        };

        let other = node.plane.set_interval(node.now, id, &change(50)).unwrap();
        assert_eq!(other.rows_needed, 120, "it is no model of these rows");
        assert!(node.configured().model.is_empty());
        assert_eq!(node.model_of_status(), ("user 7".to_owned(), true));

        let back = node.plane.set_interval(node.now, id, &change(100)).unwrap();
        assert_eq!((back.judged, back.rows_needed), (Some(interval(100)), 0));
        assert_eq!(node.configured().model, model.to_vec());
        assert_eq!(node.model_of_status(), ("user 7".to_owned(), false));
    }
}

#[test]
fn a_new_lmap_takes_no_model_of_rows_that_it_will_not_have() {
    let mut node = Node::new(settings());
    let asked = |millis: Option<u64>| LmapOptions {
        interval: millis.map(interval),
        model: model(&["a"], 200),
        ..LmapOptions::default()
    };

    for wrong in [Some(50), None] {
        let refused = node.plane.new_lmap(node.now, &service("cart"), asked(wrong)).unwrap_err();
        assert!(matches!(refused, OperatorError::ModelInterval { .. }), "{refused}");
    }
    assert!(node.plane.list().lmaps.is_empty() && node.plane.model_bytes() == 0);
    assert!(node.plane.new_lmap(node.now, &service("cart"), asked(Some(200))).is_ok());
}

#[test]
fn an_lmap_without_replicas_takes_a_model_before_anybody_can_say_whether_it_fits() {
    let mut node = Node::new(settings());
    let id = node.plane.new_lmap(node.now, &service("cart"), LmapOptions::default()).unwrap();

    let fit = node.give(id, &model(&["a"], 100), "user 7").unwrap();

    assert_eq!(fit, ModelFit::default());
}

#[test]
fn columns_of_an_lmap_over_several_services_are_known_by_service() {
    let mut node = Node::new(settings());
    node.worker(50, 0, 1);
    node.replica(1, "cart", &[counter("a")]);
    node.replica(2, "payment", &[gauge("b")]);
    let members = ["cart", "payment"].map(|name| MemberChoices { service: service(name), choices: Vec::new() });
    let options = LmapOptions { members: members.to_vec(), ..LmapOptions::default() };
    let id = node.plane.new_lmap(node.now, &service("shop"), options).unwrap();
    node.settle();
    node.set(50);

    assert!(node.give(id, &model(&["a", "b"], 100), "user 7").is_err());
    let model = model(&["cart/a", "payment/b"], 100);
    assert_eq!(node.give(id, &model, "user 7").map(|fit| (fit.columns, fit.unknown)), Ok((2, 0)));
    assert_eq!(node.configured().model, model.to_vec());
}
