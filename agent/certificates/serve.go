package certificates

import "crypto/tls"

// Server returns the settings with which the agent itself serves those who connect like clients of etcd, or nil without TLS
// of clients. They follow each change of the certificates. Where etcd demands a certificate of clients, the agent verifies one
// if the client shows it. Otherwise it asks for none: the authority may be one that signs for everyone.
func (c *Certificates) Server() *tls.Config {
	p := c.client
	if p == nil {
		return nil
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			s, err := p.current()
			if err != nil {
				return nil, err
			}
			settings := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{s.server}, SessionTicketsDisabled: true}
			if p.mutual {
				settings.ClientAuth, settings.ClientCAs = tls.VerifyClientCertIfGiven, s.pool
			}
			return settings, nil
		},
	}
}

// AgentName returns the common name of the certificate that the agents of the cluster show, or nothing if they show none.
func (c *Certificates) AgentName() string {
	if c.client == nil || !c.client.mutual {
		return ""
	}
	s, err := c.client.current()
	if err != nil || s.client.Leaf == nil {
		return ""
	}
	return s.client.Leaf.Subject.CommonName
}
