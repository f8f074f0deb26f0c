//! Emmer's frames, handshake and message headers. Sans-IO.
