//! Fragments, merged with their origin, read into settings that cannot say a wrong thing.

mod settings;

pub use settings::{
    AgentSettings, CoordinatorSettings, Credentials, DrainSettings, EmptyDir, GroupSettings,
    HealthSettings, MetricsSettings, NodeSettings, RebootSettings, Settings, SlotBackend,
    SlotServer, UnmanagedPods,
};
