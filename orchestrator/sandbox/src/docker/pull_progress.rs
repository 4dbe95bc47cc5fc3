//! What an engine's messages about layers add up to. Pure.

use std::collections::HashMap;

use bollard::models::CreateImageInfo;

/// More layers than any image has; what a registry makes the engine say beyond is passed over.
const MAX_LAYERS: usize = 1024;

/// What has come of each layer.
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
    /// Takes a message in. Those that are not about a layer's bytes change nothing.
    pub(super) fn hear(&mut self, message: &CreateImageInfo) {
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
                layer.received = bytes(detail.current).unwrap_or(layer.received).max(layer.received);
                layer.total = bytes(detail.total).or(layer.total);
            }
            "Already exists" | "Download complete" | "Pull complete" => {
                let layer = self.layers.entry(id.clone()).or_default();
                // Small layers come without one message about their bytes.
                layer.received = layer.total.unwrap_or(layer.received);
                layer.total = Some(layer.received);
            }
            _ => {}
        }
    }

    /// What has come, and what there is once every layer has said so.
    pub(super) fn bytes(&self) -> (u64, Option<u64>) {
        let received = self.layers.values().map(|layer| layer.received).sum();
        let total = self.layers.values().map(|layer| layer.total).sum::<Option<u64>>();
        (received, total.filter(|_| !self.layers.is_empty()))
    }
}

fn bytes(number: Option<i64>) -> Option<u64> {
    number.and_then(|number| u64::try_from(number).ok()).filter(|number| *number > 0)
}

#[cfg(test)]
mod tests {
    use bollard::models::{CreateImageInfo, ProgressDetail};

    use super::PullProgress;

    fn message(id: &str, status: &str, current: i64, total: i64) -> CreateImageInfo {
        CreateImageInfo {
            id: Some(id.into()),
            status: Some(status.into()),
            progress_detail: Some(ProgressDetail { current: Some(current), total: Some(total) }),
            ..CreateImageInfo::default()
        }
    }

    #[test]
    fn the_total_is_told_when_every_layer_has_told_its_own() {
        let mut progress = PullProgress::default();
        let mut after = |id: &str, status: &str, current: i64, total: i64| {
            progress.hear(&message(id, status, current, total));
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
