//! An HTTP/1.1 server on the event loop, traced as `node.http`.
