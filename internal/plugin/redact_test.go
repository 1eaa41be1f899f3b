package plugin

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestSecretsAreRemovedFromTexts(t *testing.T) {
	for text, want := range map[string]string{
		`dial https://kim:hunter2@minio:9000/backups failed`:                      `dial https://[removed]@minio:9000/backups failed`,
		`{"level":"info","msg":"login","password":"hunter2","user":"k"}`:          `{"level":"info","msg":"login","password":"[removed]","user":"k"}`,
		`{"msg":"got {\"token\":\"hunter2\"} back"}`:                              `{"msg":"got {\"token\":\"[removed]\"} back"}`,
		`access denied password=hunter2,x attempt=3`:                              `access denied password=[removed] attempt=3`,
		`curl --token hunter2 --retry 3`:                                          `curl --token [removed] --retry 3`,
		`Authorization: Bearer hunter2hunter2`:                                    `Authorization: [removed]`,
		`sent bearer hunter2hunter2 to it`:                                        `sent bearer [removed] to it`,
		"secretAccessKey: hunter2 hunter2\n  hunter2\nregion: eu":                 "secretAccessKey: [removed]\nregion: eu",
		`GET /b?X-Amz-Signature=0a1b2c&region=eu`:                                 `GET /b?X-Amz-Signature=[removed]&region=eu`,
		`key AKIAIOSFODNN7EXAMPLE is unknown`:                                     `key [removed] is unknown`,
		`age-secret-key-1qqqq and AGE-SECRET-KEY-1ZZZZ`:                           `[removed] and [removed]`,
		`wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY was used`:                       `[removed] was used`,
		"a\n-----BEGIN EC PRIVATE KEY-----\nMHc\n-----END EC PRIVATE KEY-----\nb": "a\n[removed]\nb",
		`eyJhbGciOiJSUzI1NiJ9.eyJzdWIi.c2ln is expired`:                           `[removed] is expired`,
		`{"password":["hunter2","a]b"],"user":"k"}`:                               `{"password":["[removed]"],"user":"k"}`,
		`{"msg":"got {\"token\":[\"hunter2\"]} back"}`:                            `{"msg":"got {\"token\":[\"[removed]\"]} back"}`,
		`{"Authorization":["Bearer abc"],"Accept":["a"]}`:                         `{"Authorization":["[removed]"],"Accept":["a"]}`,
		`map[Authorization:[Bearer abc] Accept:[a]]`:                              `map[Authorization:[[removed]] Accept:[a]]`,
		`{"tokens":[ "hunter2" ]}`:                                                `{"tokens":["[removed]"]}`,
		`dial https://kim:p@ss@minio:9000 failed`:                                 `dial https://[removed]@minio:9000 failed`,
		`dial "https://kim:p'ss@minio" failed`:                                    `dial "https://[removed]@minio" failed`,
		`{"kind":"Secret","data":{"app":"aHVudGVyMg=="},"type":"Opaque"}`:         `{"kind":"Secret","data":{},"type":"Opaque"}`,
		`{"msg":"got {\"kind\":\"Secret\",\"stringData\":{\"app\":\"hunter2"}`:    `{"msg":"got {\"kind\":\"Secret\",\"stringData\":{}`,
		`kind: Secret data: map[app:aHVudGVyMg==] type: Opaque`:                   `kind: Secret data: {} type: Opaque`,
		// What a reader needs stays.
		`{"kind":"ConfigMap","data":{"app":"1"},"to":"Secret demo"}`:                 `{"kind":"ConfigMap","data":{"app":"1"},"to":"Secret demo"}`,
		`secretName=demo-tls tokenFile=/var/run/token`:                               `secretName=demo-tls tokenFile=/var/run/token`,
		`image ghcr.io/etcd-druid/druid@sha256:` + strings.Repeat("0a", 32):          `image ghcr.io/etcd-druid/druid@sha256:` + strings.Repeat("0a", 32),
		`Secret demo-connection does not exist`:                                      `Secret demo-connection does not exist`,
		`2026-11-24T02:59:01Z {"msg":"decision changed","uid":"4b0f5c9e-3c3f-4d53"}`: `2026-11-24T02:59:01Z {"msg":"decision changed","uid":"4b0f5c9e-3c3f-4d53"}`,
		`lease 00000001-9f31c2d4/0000000000047900-20261124T000012Z.full.zst was saved`: `lease ` +
			`00000001-9f31c2d4/0000000000047900-20261124T000012Z.full.zst was saved`,
	} {
		if got := redactText(text); got != want {
			t.Errorf("%s\ngives\n%s\nwant\n%s", text, got, want)
		}
	}
}

func TestSecretsAreRemovedFromObjects(t *testing.T) {
	for text, want := range map[string]string{
		`{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"x","etcd.druid.dev/hands-off":"ask Kim"}}`: `{"annotations":{"etcd.druid.dev/` +
			`hands-off":"ask Kim","kubectl.kubernetes.io/last-applied-configuration":"[removed]"}}`,
		`{"env":[{"name":"A","value":"x"},{"name":"B","valueFrom":{"secretKeyRef":{"name":"s","key":"k"}}}]}`: `{"env":[{"name":"A",` +
			`"value":"[removed]"},{"name":"B","valueFrom":{"secretKeyRef":{"key":"k","name":"s"}}}]}`,
		`{"kind":"Secret","data":{"a":"x"},"stringData":{"a":"x"},"type":"Opaque"}`: `{"kind":"Secret","type":"Opaque"}`,
		`{"args":["--password","x","--api-token=x","--level","info"]}`: `{"args":["--password",` +
			`"[removed]","--api-token=[removed]","--level","info"]}`,
		`{"containers":[{"name":"proxy","image":"i","command":["sh","-c","run -px"]}]}`: `{"containers":[{"command":"[removed]",` +
			`"image":"i","name":"proxy"}]}`,
		`{"data":{"config.yaml":"store:\n  s3:\n    secretAccessKey: x\n    region: eu\n"}}`: `{"data":{"config.yaml":"store:\n  ` +
			`s3:\n    region: eu\n    secretAccessKey: '[removed]'\n"}}`,
		`{"data":{"password":"hunter2","region":"eu","token.json":"{}"}}`: `{"data":{"password":"[removed]",` +
			`"region":"eu","token.json":"[removed]"}}`,
		`{"tokens":["hunter2"],"names":["a"]}`: `{"names":["a"],"tokens":["[removed]"]}`,
		`{"headers":{"Authorization":["Bearer abc"],"Accept":["a"]}}`: `{"headers":{"Accept":["a"],` +
			`"Authorization":["[removed]"]}}`,
		`{"credentials":[{"id":"x","name":"s3"}],"secretNames":["demo-tls"]}`: `{"credentials":[{"id":"[removed]",` +
			`"name":"s3"}],"secretNames":["demo-tls"]}`,
		`{"data":{"config.yaml":"password: [hunter2]\nendpoint: https://kim:p@ss@minio\n"}}`: `{"data":{"config.yaml":"endpoint: ` +
			`https://[removed]@minio\npassword:\n- '[removed]'\n"}}`,
		`{"data":{"broken":"a: b: c\npassword: x"}}`: `{"data":{"broken":"a: b: c\npassword: [removed]"}}`,
		`{"csi":{"driver":"d","volumeAttributes":{"share":"x"}}}`: `{"csi":{"driver":"d",` +
			`"volumeAttributes":{"share":"[removed]"}}}`,
		`{"httpHeaders":[{"name":"Authorization","value":"x"},{"name":"Accept","value":"y"}]}`: `{"httpHeaders":[{"name":"Authorization",` +
			`"value":"[removed]"},{"name":"Accept","value":"y"}]}`,
		`{"credentials":{"id":"x","name":"s3"},"secret":{"secretName":"demo-tls"},"imagePullSecrets":[{"name":"pull"}]}`: `{"credentials":{"id":"[removed]",` +
			`"name":"s3"},"imagePullSecrets":[{"name":"pull"}],"secret":{"secretName":"demo-tls"}}`,
		`{"managedFields":[{"manager":"kubectl"}],"message":"{\"token\":\"x\",\"n\":1}"}`: `{"message":"{\"n\":1,\"token\":\"[removed]\"}"}`,
	} {
		var value any
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			t.Fatal(err)
		}
		got, err := json.Marshal(redactValue(value))
		if err != nil || string(got) != want {
			t.Errorf("%s\ngives\n%s\nwant\n%s", text, got, want)
		}
	}
}
