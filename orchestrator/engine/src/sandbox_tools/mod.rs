//! Tools of an agent that require software in the sandbox, which custom images may lack. They are
//! offered like those of tool servers, once a probe has found the software. Their calls become
//! actions like those of the agent's other tools.
//!
//! A sandbox is probed once per boot of its action server, with a timeout. Software that is
//! installed later is found after the next boot.

mod probe;

use std::sync::Arc;

use async_trait::async_trait;
use protocol::{BootId, Observation};
use serde_json::{Map, Value};
use tokio::sync::Mutex;

use crate::llm::Tool;
use crate::sandbox::Sandbox;
use crate::tool_servers::{SandboxToolServer, ToolOffer, ToolServers};

pub use probe::{BROWSERS, CHROMIUM, IPYTHON, PROBE, PYTHON, SandboxFacts, facts};

/// A tool with its requirement.
#[derive(Debug, Clone, PartialEq)]
pub struct SandboxTool {
    /// The name of the required fact: [`PYTHON`], [`IPYTHON`] or [`CHROMIUM`].
    pub needs: &'static str,
    /// The definition for the model.
    pub tool: Tool,
    /// Whether the agent refuses to work without it.
    pub is_required: bool,
}

/// Wraps the tool servers of a conversation.
pub struct SandboxTools {
    servers: Arc<dyn ToolServers>,
    tools: Vec<SandboxTool>,
    /// The result of the latest probe, with the boot id. Locked during a probe, so that concurrent
    /// callers share its result.
    probed: Mutex<Option<(BootId, SandboxFacts)>>,
}

impl SandboxTools {
    /// Offers these tools in addition to those of the servers, whose tools have other names.
    pub fn new(servers: Arc<dyn ToolServers>, tools: Vec<SandboxTool>) -> Self {
        Self {
            servers,
            tools,
            probed: Mutex::default(),
        }
    }

    /// Returns the supported tools, and the obstacle if a required one is missing. Without a
    /// sandbox the result of the latest probe remains valid.
    async fn supported_tools(
        &self,
        sandbox: Option<&Arc<dyn Sandbox>>,
    ) -> (Vec<Tool>, Option<String>) {
        if self.tools.is_empty() {
            return Default::default();
        }
        let mut probed = self.probed.lock().await;
        if let Some(sandbox) = sandbox {
            let boot_id = &sandbox.lease().boot_id;
            if probed
                .as_ref()
                .is_none_or(|(probed_boot, _)| probed_boot != boot_id)
            {
                *probed = match probe::probe(sandbox.as_ref()).await {
                    Ok(facts) => {
                        for missing in self
                            .tools
                            .iter()
                            .filter(|tool| !facts.contains_key(tool.needs))
                        {
                            tracing::warn!("{}", missing.problem());
                        }
                        Some((boot_id.clone(), facts))
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot probe the sandbox");
                        None
                    }
                };
            }
        }
        let Some((_, facts)) = probed.as_ref() else {
            return Default::default();
        };
        let (supported, missing): (Vec<_>, Vec<_>) = self
            .tools
            .iter()
            .partition(|tool| facts.contains_key(tool.needs));
        let obstacle = missing
            .iter()
            .find(|tool| tool.is_required)
            .map(|tool| tool.problem());
        (
            supported
                .into_iter()
                .map(|tool| tool.tool.clone())
                .collect(),
            obstacle,
        )
    }
}

impl SandboxTool {
    /// Returns why it is not offered, human-readable.
    fn problem(&self) -> String {
        let Self { needs, tool, .. } = self;
        let software = match *needs {
            IPYTHON => "IPython in its python3",
            CHROMIUM => "Chromium",
            PYTHON => "python3 3.8 or later",
            other => other,
        };
        format!(
            "the tool {} is not offered: no {software} was found in the sandbox",
            tool.name
        )
    }
}

#[async_trait]
impl ToolServers for SandboxTools {
    async fn offer(&self, sandbox: Option<&Arc<dyn Sandbox>>) -> ToolOffer {
        let ((tools, obstacle), mut offer) =
            tokio::join!(self.supported_tools(sandbox), self.servers.offer(sandbox));
        offer.sandbox_tools = tools;
        offer.obstacle = offer.obstacle.or(obstacle);
        offer
    }

    async fn call(&self, name: &str, arguments: &Map<String, Value>) -> Observation {
        self.servers.call(name, arguments).await
    }

    async fn set_sandbox_servers(&self, servers: Vec<SandboxToolServer>) {
        self.servers.set_sandbox_servers(servers).await;
    }

    fn is_empty(&self) -> bool {
        self.tools.is_empty() && self.servers.is_empty()
    }

    async fn shut_down(&self) {
        self.servers.shut_down().await;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use protocol::record::SandboxLeased;
    use protocol::sandbox_api::{
        ActionRequest, ExitReason, OutputStream, ProcessExit, ProcessRequest,
    };
    use protocol::{ActionId, ProcessId};
    use serde_json::json;

    use super::*;
    use crate::sandbox::{
        ByteSource, OnOutput, OnProgramOutput, OutputChunk, SandboxError, SandboxFiles,
        SandboxProcesses, SandboxStreams,
    };
    use crate::tool_servers::NoToolServers;

    /// Sandbox with a fixed probe output. Counts its probes.
    struct ProbedSandbox {
        lease: SandboxLeased,
        output: Option<&'static str>,
        probe_count: AtomicUsize,
    }

    #[async_trait]
    impl Sandbox for ProbedSandbox {
        fn lease(&self) -> &SandboxLeased {
            &self.lease
        }

        async fn execute(
            &self,
            _: &ActionId,
            _: &ActionRequest,
            _: &OnOutput<'_>,
        ) -> Result<Observation, SandboxError> {
            Err(SandboxError::Lost {
                detail: "no actions".into(),
            })
        }

        async fn cancel(&self, _: &ActionId) -> Result<(), SandboxError> {
            Ok(())
        }

        async fn check_connection(&self) -> Result<(), SandboxError> {
            Ok(())
        }

        fn processes(&self) -> Result<&dyn SandboxProcesses, SandboxError> {
            Ok(self)
        }

        fn streams(&self) -> Result<&dyn SandboxStreams, SandboxError> {
            Err(SandboxError::Unsupported {
                runtime: "scripted",
                what: "open streams",
            })
        }

        fn files(&self) -> Result<&dyn SandboxFiles, SandboxError> {
            Err(SandboxError::Unsupported {
                runtime: "scripted",
                what: "transfer files",
            })
        }
    }

    #[async_trait]
    impl SandboxProcesses for ProbedSandbox {
        async fn set_environment(&self, _: &BTreeMap<String, String>) -> Result<(), SandboxError> {
            Ok(())
        }

        async fn exec(
            &self,
            _: &ProcessId,
            request: &ProcessRequest,
            _: Option<ByteSource>,
            on_output: &OnProgramOutput<'_>,
        ) -> Result<ProcessExit, SandboxError> {
            assert_eq!(request.argv[2], PROBE);
            self.probe_count.fetch_add(1, Ordering::Relaxed);
            let output = self.output.ok_or_else(|| SandboxError::Lost {
                detail: "gone".into(),
            })?;
            on_output(
                OutputStream::Stdout,
                OutputChunk::Bytes {
                    offset: 0,
                    bytes: output.as_bytes(),
                },
            );
            Ok(ProcessExit {
                code: Some(1),
                signal: None,
                reason: ExitReason::Exited,
                error: None,
                out_of_memory: false,
                usage: None,
            })
        }

        async fn kill_process(&self, _: &ProcessId) -> Result<(), SandboxError> {
            Ok(())
        }
    }

    fn sandbox(boot_id: &str, output: Option<&'static str>) -> Arc<ProbedSandbox> {
        let lease = json!({"sandbox_id": "s", "runtime": "scripted", "boot_id": boot_id, "working_dir": "/"});
        let lease = serde_json::from_value(lease).unwrap();
        Arc::new(ProbedSandbox {
            lease,
            output,
            probe_count: AtomicUsize::new(0),
        })
    }

    fn tools_with(is_required: bool) -> SandboxTools {
        let tool = Tool {
            name: "cell".into(),
            description: String::new(),
            parameters: json!({}),
        };
        SandboxTools::new(
            Arc::new(NoToolServers),
            vec![SandboxTool {
                needs: IPYTHON,
                tool,
                is_required,
            }],
        )
    }

    #[tokio::test]
    async fn missing_required_tool_is_an_obstacle() {
        let obstacle = async |tools: &SandboxTools, sandbox: &Arc<ProbedSandbox>| {
            let sandbox = Arc::clone(sandbox) as Arc<dyn Sandbox>;
            tools.offer(Some(&sandbox)).await.obstacle
        };
        let with = sandbox("one", Some("glovebox-probe ipython 8.1\n"));
        let without = sandbox("two", Some("glovebox-probe ipython \n"));
        let (required, optional) = (tools_with(true), tools_with(false));
        assert_eq!(obstacle(&required, &with).await, None);
        let problem =
            "the tool cell is not offered: no IPython in its python3 was found in the sandbox";
        assert_eq!(
            obstacle(&required, &without).await.as_deref(),
            Some(problem)
        );
        assert_eq!(
            obstacle(&required, &without).await.as_deref(),
            Some(problem),
            "the result is cached"
        );
        assert_eq!(obstacle(&optional, &without).await, None);
        assert_eq!(
            obstacle(&required, &sandbox("three", None)).await,
            None,
            "the probe failed"
        );
    }

    async fn names(tools: &SandboxTools, sandbox: Option<&Arc<ProbedSandbox>>) -> Vec<String> {
        let sandbox = sandbox.map(|sandbox| Arc::clone(sandbox) as Arc<dyn Sandbox>);
        tools
            .offer(sandbox.as_ref())
            .await
            .sandbox_tools
            .into_iter()
            .map(|tool| tool.name)
            .collect()
    }

    #[tokio::test]
    async fn sandbox_is_probed_once_per_boot() {
        let with = sandbox("one", Some("glovebox-probe ipython 8.1\n"));
        let without = sandbox("two", Some("glovebox-probe ipython \n"));
        let tools = tools_with(false);
        assert!(names(&tools, None).await.is_empty());
        assert_eq!(names(&tools, Some(&with)).await, ["cell"]);
        assert_eq!(names(&tools, Some(&with)).await, ["cell"]);
        assert_eq!(
            names(&tools, None).await,
            ["cell"],
            "the latest result stays valid"
        );
        assert!(names(&tools, Some(&without)).await.is_empty());
        assert!(names(&tools, Some(&without)).await.is_empty());
        assert_eq!(
            [&with, &without].map(|sandbox| sandbox.probe_count.load(Ordering::Relaxed)),
            [1, 1]
        );
    }

    #[tokio::test]
    async fn failed_probe_is_repeated() {
        let silent = sandbox("one", None);
        let tools = tools_with(false);
        assert!(names(&tools, Some(&silent)).await.is_empty());
        assert!(names(&tools, Some(&silent)).await.is_empty());
        assert_eq!(silent.probe_count.load(Ordering::Relaxed), 2);
        assert!(!tools.is_empty());
        assert!(SandboxTools::new(Arc::new(NoToolServers), Vec::new()).is_empty());
    }
}
