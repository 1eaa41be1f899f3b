package webui

import (
	"context"
	"errors"
	"net"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/etcd-druid/druid/internal/view"
)

// problem is why something could not be read, and what to do.
type problem struct {
	What, Next string
	// Docs is a page about it, if there is one.
	Docs string
}

// permissionsDocs lists the permissions that the plugin needs.
const permissionsDocs = "https://github.com/etcd-druid/druid/blob/main/docs/how-to/run/kubectl-plugin.md#permissions"

// problemOf explains an error of the API server, or of the way to it.
func problemOf(err error) *problem {
	var connection *net.OpError
	var lookup *net.DNSError
	var network net.Error
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err), strings.Contains(err.Error(), "is forbidden: "): // the error of an upgraded connection has only the text
		return &problem{"You may not read this. " + view.Sentence(err.Error()),
			"Ask for the permission. Or end kubectl druid ui, and start it for a namespace that you may read: kubectl druid ui --namespace NAMESPACE.", permissionsDocs}
	case apierrors.IsUnauthorized(err):
		return &problem{What: "The API server does not accept your credentials. " + view.Sentence(err.Error()),
			Next: "Log in to Kubernetes again. This page continues by itself, or end kubectl druid ui, and start it again."}
	case apierrors.IsNotFound(err):
		return &problem{What: "It does not exist, or was deleted. " + view.Sentence(err.Error()), Next: "Look for it in the list of all clusters."}
	case apierrors.IsTooManyRequests(err):
		return &problem{What: "The API server is busy. " + view.Sentence(err.Error()), Next: "Wait. This page continues by itself."}
	// An *url.Error is a net.Error too, also if credentials or a certificate are wrong.
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &connection), errors.As(err, &lookup), errors.As(err, &network) && network.Timeout():
		return &problem{What: "The API server cannot be reached. " + view.Sentence(err.Error()),
			Next: "Check your network, your VPN, and the answer of: kubectl cluster-info. This page continues by itself."}
	default:
		return &problem{What: view.Sentence(err.Error()), Next: "Check the answer of: kubectl druid get. This page continues by itself."}
	}
}
