//! `/metrics` and `/healthz`, read-only, and nothing else.
//!
//! Connections are limited in number and in time, in both directions: a client that says
//! nothing, or that asks and does not read, costs little and not for long, and keeps nobody
//! else out.

use crate::room::{Place, Room};
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
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;

/// Connections at once; one more takes the place of the oldest.
const CONNECTIONS_MAX: usize = 64;
/// Connections at once with those that have lost their place and are about to end.
const CONNECTIONS_ENDING_MAX: usize = 2 * CONNECTIONS_MAX;
/// How long a connection may keep us waiting, from its beginning on.
const WAIT_LIMIT: Duration = Duration::from_secs(30);
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
    let (room, connections) = (Room::new(CONNECTIONS_MAX), Arc::new(Semaphore::new(CONNECTIONS_ENDING_MAX)));
    let listener = Bounded { listener, room, connections };
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
    room: Room,
    connections: Arc<Semaphore>,
}

impl Listener for Bounded {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        // A permit first: while too many are ending the next waits in the listener's queue.
        let Ok(permit) = Arc::clone(&self.connections).acquire_owned().await else {
            return std::future::pending().await;
        };
        loop {
            match self.listener.accept().await {
                Ok((stream, from)) => {
                    let (place, time) = (self.room.enter(), Box::pin(tokio::time::sleep(WAIT_LIMIT)));
                    return (Connection { stream, place, time, _permit: permit }, from);
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

/// A connection that ends once it has made us wait for too long, or somebody else has been
/// given its place. What can be read or written without waiting always is.
struct Connection {
    stream: TcpStream,
    place: Place,
    time: Pin<Box<Sleep>>,
    _permit: OwnedSemaphorePermit,
}

impl Connection {
    /// Instead of waiting for the client: whether that is over.
    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match Pin::new(&mut self.place).poll(cx) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => self.time.as_mut().poll(cx),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match pin!(&mut self.stream).poll_read(cx, buf) {
            // As if the client had closed it.
            Poll::Pending => self.poll_over(cx).map(Ok),
            ready => ready,
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match pin!(&mut self.stream).poll_write(cx, buf) {
            Poll::Pending => self.poll_over(cx).map(|()| Err(io::ErrorKind::TimedOut.into())),
            ready => ready,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        pin!(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        pin!(&mut self.stream).poll_shutdown(cx)
    }
}
