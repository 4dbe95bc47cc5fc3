//! Progress of an image pull, summed over its layers.

use std::collections::HashMap;

use bollard::models::CreateImageInfo;

/// More layers than any image has. Messages about further layers are ignored, since a registry
/// controls their number.
const MAX_LAYERS: usize = 1024;

/// Progress of each layer.
#[derive(Debug, Default)]
pub(super) struct PullProgress {
    layers: HashMap<String, Layer>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Layer {
    received: u64,
    total: Option<u64>,
}

impl PullProgress {
    /// Applies a message of the engine. Messages without a byte count are ignored.
    pub(super) fn apply(&mut self, message: &CreateImageInfo) {
        let (Some(id), Some(status)) = (&message.id, &message.status) else {
            return;
        };
        if self.layers.len() >= MAX_LAYERS && !self.layers.contains_key(id) {
            return;
        }
        match status.as_str() {
            "Pulling fs layer" | "Waiting" => {
                self.layers.entry(id.clone()).or_default();
            }
            "Downloading" => {
                let layer = self.layers.entry(id.clone()).or_default();
                let detail = message.progress_detail.clone().unwrap_or_default();
                layer.received = bytes(detail.current)
                    .unwrap_or(layer.received)
                    .max(layer.received);
                layer.total = bytes(detail.total).or(layer.total);
            }
            "Already exists" | "Download complete" | "Pull complete" => {
                let layer = self.layers.entry(id.clone()).or_default();
                // Small layers complete without a byte count.
                layer.received = layer.total.unwrap_or(layer.received);
                layer.total = Some(layer.received);
            }
            _ => {}
        }
    }

    /// Returns the bytes received, and the total. The total is `None` until every layer has
    /// reported its size.
    pub(super) fn bytes(&self) -> (u64, Option<u64>) {
        let received = self.layers.values().map(|layer| layer.received).sum();
        let total = self
            .layers
            .values()
            .map(|layer| layer.total)
            .sum::<Option<u64>>();
        (received, total.filter(|_| !self.layers.is_empty()))
    }
}

fn bytes(number: Option<i64>) -> Option<u64> {
    number
        .and_then(|number| u64::try_from(number).ok())
        .filter(|number| *number > 0)
}

#[cfg(test)]
mod tests {
    use bollard::models::{CreateImageInfo, ProgressDetail};

    use super::PullProgress;

    fn message(id: &str, status: &str, current: i64, total: i64) -> CreateImageInfo {
        CreateImageInfo {
            id: Some(id.into()),
            status: Some(status.into()),
            progress_detail: Some(ProgressDetail {
                current: Some(current),
                total: Some(total),
            }),
            ..CreateImageInfo::default()
        }
    }

    #[test]
    fn total_is_known_when_every_layer_has_reported_its_size() {
        let mut progress = PullProgress::default();
        let mut after = |id: &str, status: &str, current: i64, total: i64| {
            progress.apply(&message(id, status, current, total));
            progress.bytes()
        };
        assert_eq!(after("a", "Pulling fs layer", 0, 0), (0, None));
        assert_eq!(after("b", "Pulling fs layer", 0, 0), (0, None));
        assert_eq!(after("a", "Downloading", 10, 100), (10, None));
        assert_eq!(after("b", "Already exists", 0, 0), (10, Some(100)));
        assert_eq!(after("a", "Download complete", 0, 0), (100, Some(100)));
        assert_eq!(after("a", "Extracting", 7, 300), (100, Some(100)));
        assert_eq!(after("a", "Downloading", -1, -1), (100, Some(100)));
    }
}
