//! The tokio shell: silo, activations, messaging, gateway, client.
