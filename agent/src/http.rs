//! `/metrics` and `/healthz`, read-only, and nothing else.
//!
//! A connection is read from for a limited time only, and connections are limited in
//! number, so that a client that says nothing costs little and not for long.

use crate::sink::metrics::Metrics;
use crate::target::registry::Registry;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::serve::Listener;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;

/// Connections at once.
const CONNECTIONS_MAX: usize = 64;
/// How long requests are read from a connection.
const READ_LIMIT: Duration = Duration::from_secs(30);
/// How long nobody is accepted after an error such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Prometheus's text format.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

#[derive(Clone, Debug)]
struct Shown {
    metrics: Arc<Metrics>,
    registry: Arc<Registry>,
}

/// Serves for ever.
pub async fn serve(listener: TcpListener, metrics: Arc<Metrics>, registry: Arc<Registry>) {
    let app = axum::Router::new().fallback(answer).with_state(Shown { metrics, registry });
    let listener = Bounded { listener, connections: Arc::new(Semaphore::new(CONNECTIONS_MAX)) };
    if let Err(error) = axum::serve(listener, app).await {
        tracing::error!(%error, "the HTTP server has ended");
    }
}

async fn answer(State(shown): State<Shown>, request: Request) -> Response {
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => {
            ([(header::CONTENT_TYPE, TEXT_FORMAT)], shown.metrics.render(&shown.registry.targets())).into_response()
        }
        (&Method::GET, "/healthz") => "ok\n".into_response(),
        (_, "/metrics" | "/healthz") => (StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, "GET")]).into_response(),
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

struct Bounded {
    listener: TcpListener,
    connections: Arc<Semaphore>,
}

impl Listener for Bounded {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        // A permit first: who comes beyond the bound waits in the listener's queue.
        let Ok(permit) = Arc::clone(&self.connections).acquire_owned().await else {
            return std::future::pending().await;
        };
        loop {
            match self.listener.accept().await {
                Ok((stream, from)) => {
                    let read_limit = Box::pin(tokio::time::sleep(READ_LIMIT));
                    return (Connection { stream, read_limit, _permit: permit }, from);
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept an HTTP connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that ends, as if the client had closed it, when its time is over. Only
/// reading ends: an answer on its way is sent.
struct Connection {
    stream: TcpStream,
    read_limit: Pin<Box<Sleep>>,
    _permit: OwnedSemaphorePermit,
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if pin!(&mut self.stream).poll_read(cx, buf)?.is_ready() {
            return Poll::Ready(Ok(()));
        }
        ready!(self.read_limit.as_mut().poll(cx));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        pin!(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        pin!(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        pin!(&mut self.stream).poll_shutdown(cx)
    }
}
