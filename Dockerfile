# One image for both sides: druid, the controller, and the agent with its launch, which the members' Pods copy from here.
# They are not in /, because a member's Pod mounts the directory that they are copied to at /druid.
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
ARG TARGETOS TARGETARCH
# What `agent version` and `druid version` print, and the member Leases contain: --build-arg VERSION=$(git describe --tags)
ARG VERSION
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# Static binaries: the agent runs in etcd's own image, whose C library is not ours to choose.
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags "-s -w -X github.com/etcd-druid/druid/internal/cli.version=$VERSION" -o /out/ ./cmd/agent ./cmd/launch ./cmd/druid

# The base holds the roots of trust for TLS, and no shell.
FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /out/agent /out/launch /out/druid /usr/local/bin/
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/druid"]
