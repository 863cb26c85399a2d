//! The series of one service over all its replicas: one kind per name, within the service's limits.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::sync::Arc;

use wire::metric::{Declaration, Kind, Series};
use wire::name::{Labels, MetricName, Unit};

use super::declarations::Declarations;
use super::footprint;
use super::refusal::SeriesRefusal;
use super::replica::SeriesKey;
use super::settings::Limits;

/// Owner of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    Service,
    /// The agent, for process metrics and span metrics. Has a reserve of its own.
    Agent,
}

#[derive(Debug)]
struct Entry {
    series: Series,
    replicas: usize,
    declared: Declarations,
}

/// The series of one service.
#[derive(Debug, Default)]
pub struct Catalogue {
    series: BTreeMap<Arc<SeriesKey>, Entry>,
    /// Series about which replicas declare different things.
    disagreeing: BTreeSet<Arc<SeriesKey>>,
    text_bytes: usize,
    places: usize,
    /// Bytes of keys, of what series point at, and of declarations.
    owned_bytes: usize,
}

/// What all series of one name have in common.
fn shape(series: &Series) -> (Kind, Option<&Unit>, NonZeroU64) {
    (series.kind, series.unit.as_ref(), series.parts_per_unit)
}

fn describe(series: &Series) -> String {
    let kind = match series.kind {
        Kind::Histogram(scale) => format!("histogram of {} buckets up to 2^{}", scale.buckets(), scale.max_bits()),
        kind => kind.to_string(),
    };
    let unit = series.unit.as_ref().map(|unit| format!(" in {unit}")).unwrap_or_default();
    match series.parts_per_unit {
        NonZeroU64::MIN => format!("{kind}{unit}"),
        parts => format!("{kind}{unit} kept in {parts} parts"),
    }
}

impl Catalogue {
    /// The series of `name`, all of one kind.
    pub fn named<'a>(&'a self, name: &'a MetricName) -> impl Iterator<Item = (&'a Arc<SeriesKey>, &'a Series)> {
        // A key without labels sorts first.
        let first = SeriesKey { name: name.clone(), labels: Labels::default() };
        self.series
            .range::<SeriesKey, _>(first..)
            .take_while(move |(key, _)| key.name == *name)
            .map(|(key, entry)| (key, &entry.series))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Arc<SeriesKey>, &Series)> {
        self.series.iter().map(|(key, entry)| (key, &entry.series))
    }

    pub fn get(&self, key: &SeriesKey) -> Option<&Series> {
        self.series.get(key).map(|entry| &entry.series)
    }

    /// Bytes that it takes, as they were asked for.
    pub fn kept_bytes(&self) -> usize {
        footprint::of_tree::<Arc<SeriesKey>, Entry>(self.series.len()) + self.owned_bytes
    }

    /// What replicas declare about a series.
    pub fn declared(&self, key: &SeriesKey) -> Option<&Declarations> {
        self.series.get(key).map(|entry| &entry.declared)
    }

    /// Series about which replicas declare different things.
    pub fn disagreeing(&self) -> impl Iterator<Item = &Arc<SeriesKey>> {
        self.disagreeing.iter()
    }

    /// Whether one more replica may have `series`.
    pub fn check(&self, key: &SeriesKey, series: &Series, owner: Owner, limits: &Limits) -> Result<(), SeriesRefusal> {
        if let Some((_, known)) = self.named(&key.name).next()
            && shape(known) != shape(series)
        {
            return Err(SeriesRefusal::Kind { known: describe(known), asked: describe(series) });
        }
        if owner == Owner::Service && self.places >= limits.places_per_service {
            return Err(SeriesRefusal::Places { limit: limits.places_per_service });
        }
        if self.series.contains_key(key) {
            return Ok(());
        }
        let limit = match owner {
            Owner::Service => limits.series_per_service.saturating_sub(Limits::OWN_SERIES),
            Owner::Agent => limits.series_per_service,
        };
        if self.series.len() >= limit {
            return Err(SeriesRefusal::TooMany { limit });
        }
        if self.text_bytes + key.text_bytes() > limits.text_bytes_per_service {
            return Err(SeriesRefusal::Text { limit: limits.text_bytes_per_service });
        }
        Ok(())
    }

    /// Adds `series` for one replica, with whose it is and what it declares. Returns the shared key, and whether it is
    /// the first replica with it.
    pub fn add(
        &mut self,
        key: SeriesKey,
        series: Series,
        (payer, declared): (wire::id::Owner, &Declaration),
    ) -> (Arc<SeriesKey>, bool) {
        self.places += 1;
        let known = self.series.get_key_value(&key).map(|(known, _)| Arc::clone(known));
        let is_first = known.is_none();
        let key = known.unwrap_or_else(|| {
            self.text_bytes += key.text_bytes();
            self.owned_bytes += key.kept_bytes() + footprint::of_registered(&series);
            Arc::new(key)
        });
        let new = || Entry { series, replicas: 0, declared: Declarations::default() };
        let entry = self.series.entry(Arc::clone(&key)).or_insert_with(new);
        entry.replicas += 1;
        self.owned_bytes -= entry.declared.kept_bytes();
        entry.declared.add(payer, declared);
        self.owned_bytes += entry.declared.kept_bytes();
        if entry.declared.disagree() {
            self.disagreeing.insert(Arc::clone(&key));
        }
        (key, is_first)
    }

    /// Removes the series of one replica, with whose it is and what it declared. True if it was the last.
    pub fn remove(&mut self, key: &SeriesKey, (payer, declared): (wire::id::Owner, &Declaration)) -> bool {
        let Some(entry) = self.series.get_mut(key) else {
            return false;
        };
        self.places = self.places.saturating_sub(1);
        entry.replicas -= 1;
        self.owned_bytes = self.owned_bytes.saturating_sub(entry.declared.kept_bytes());
        entry.declared.remove(payer, declared);
        if !entry.declared.disagree() {
            self.disagreeing.remove(key);
        }
        if entry.replicas > 0 {
            self.owned_bytes += entry.declared.kept_bytes();
            return false;
        }
        let gone = key.kept_bytes() + footprint::of_registered(&entry.series);
        self.owned_bytes = self.owned_bytes.saturating_sub(gone);
        self.text_bytes = self.text_bytes.saturating_sub(key.text_bytes());
        self.series.remove(key);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{counter, gauge, labelled};
    use super::*;

    /// What a replica of the agent's own declares.
    const NOTHING: (wire::id::Owner, &Declaration) = (wire::id::Owner::Agent, &Declaration::NONE);

    fn try_add(catalogue: &mut Catalogue, series: &Series, limits: &Limits) -> Result<bool, SeriesRefusal> {
        let key = SeriesKey::of(series);
        catalogue.check(&key, series, Owner::Service, limits)?;
        Ok(catalogue.add(key, series.clone(), NOTHING).1)
    }

    #[test]
    fn a_name_has_one_kind_whatever_its_labels_until_the_last_replica_gave_it_up() {
        let mut catalogue = Catalogue::default();
        let limits = Limits::default();

        assert_eq!(try_add(&mut catalogue, &counter("a"), &limits), Ok(true));
        assert_eq!(try_add(&mut catalogue, &counter("a"), &limits), Ok(false));
        let refused = try_add(&mut catalogue, &labelled(gauge("a"), "route", "/"), &limits).unwrap_err();
        assert!(refused.to_string().starts_with("this metric is a counter, not a gauge"), "{refused}");

        let key = SeriesKey::of(&counter("a"));
        assert!(!catalogue.remove(&key, NOTHING));
        assert!(catalogue.remove(&key, NOTHING));
        assert_eq!(try_add(&mut catalogue, &gauge("a"), &limits), Ok(true));
    }

    #[test]
    fn what_a_series_takes_is_counted_until_the_last_replica_has_given_it_up() {
        let mut catalogue = Catalogue::default();
        let series = labelled(gauge("a"), "route", "/");
        let key = SeriesKey::of(&series);
        let declared = (wire::id::Owner::User(1000), &Declaration::from_message("max", 0));

        for _ in 0..2 {
            catalogue.add(key.clone(), series.clone(), declared);
        }

        let taken = catalogue.kept_bytes();
        assert!(taken > size_of::<SeriesKey>() + size_of::<Entry>() + 2 * key.text_bytes(), "{taken}");
        assert!(!catalogue.remove(&key, declared));
        assert_eq!(catalogue.kept_bytes(), taken);
        assert!(catalogue.remove(&key, declared));
        assert_eq!(catalogue.kept_bytes(), 0);
    }

    #[test]
    fn series_places_and_text_are_bounded() {
        let mut catalogue = Catalogue::default();
        let limits = Limits { series_per_service: Limits::OWN_SERIES + 2, places_per_service: 3, ..Limits::default() };
        try_add(&mut catalogue, &counter("a"), &limits).unwrap();
        try_add(&mut catalogue, &counter("b"), &limits).unwrap();

        assert_eq!(try_add(&mut catalogue, &counter("c"), &limits), Err(SeriesRefusal::TooMany { limit: 2 }));
        let own = counter("process.cpu.time");
        assert!(catalogue.check(&SeriesKey::of(&own), &own, Owner::Agent, &limits).is_ok());
        try_add(&mut catalogue, &counter("a"), &limits).unwrap();
        assert_eq!(try_add(&mut catalogue, &counter("b"), &limits), Err(SeriesRefusal::Places { limit: 3 }));

        let small = Limits { text_bytes_per_service: 3, ..Limits::default() };
        assert_eq!(try_add(&mut catalogue, &counter("cc"), &small), Err(SeriesRefusal::Text { limit: 3 }));
    }
}
