package terraform_test

import (
	"context"
	"maps"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
	"github.com/hashicorp/terraform-plugin-sdk/v2/diag"
	"github.com/hashicorp/terraform-plugin-sdk/v2/helper/schema"
)

// Stand-ins for providers that tests cannot install: they declare what the starters use of the real ones, with the same types and the same rules
// about replacement, and make nothing. scripts/test-docker-starter runs the starter "docker" with the real provider.

// standIn returns the stand-in that Terraform starts under the path of a program, or nil.
func standIn(program string) func() *schema.Provider {
	if !strings.HasPrefix(filepath.Base(program), pluginMark) {
		return nil
	}
	for source, p := range map[string]func() *schema.Provider{"kreuzwerker/docker": dockerStandIn, "hashicorp/kubernetes": kubernetesStandIn} {
		if strings.Contains(filepath.ToSlash(program), "/"+source+"/") {
			return p
		}
	}
	if _, rest, found := strings.Cut(filepath.ToSlash(program), "/hashicorp/"); found {
		name, _, _ := strings.Cut(rest, "/")
		if p := cloudStandIn(name); p != nil {
			return func() *schema.Provider { return p }
		}
	}
	return nil
}

type attributes = map[string]*schema.Schema

// fixed is an optional attribute that only a new resource can change; open one that changes in place.
func fixed(of schema.ValueType) *schema.Schema {
	return &schema.Schema{Type: of, Optional: true, ForceNew: true, Elem: elementOf(of)}
}

func open(of schema.ValueType) *schema.Schema {
	return &schema.Schema{Type: of, Optional: true, Elem: elementOf(of)}
}

func elementOf(of schema.ValueType) any {
	if of == schema.TypeList || of == schema.TypeSet || of == schema.TypeMap {
		return &schema.Schema{Type: schema.TypeString}
	}
	return nil
}

func blocks(of schema.ValueType, a attributes) *schema.Schema {
	return &schema.Schema{Type: of, Optional: true, Elem: &schema.Resource{Schema: a}}
}

// made is a resource that exists in the state only.
func made(a attributes) *schema.Resource {
	a = maps.Clone(a)
	nothing := func(context.Context, *schema.ResourceData, any) diag.Diagnostics { return nil }
	r := &schema.Resource{
		Schema: a, ReadContext: nothing, DeleteContext: nothing,
		CreateContext: func(_ context.Context, d *schema.ResourceData, _ any) diag.Diagnostics {
			d.SetId(uuid.NewString())
			return nil
		},
	}
	for _, s := range a {
		if !s.ForceNew {
			r.UpdateContext = nothing
		}
	}
	return r
}

// measured is like made, but what the template does not set is in the state as the engine sets it: every plan would change it.
func measured(a attributes) *schema.Resource {
	r := made(a)
	create := r.CreateContext
	r.CreateContext = func(ctx context.Context, d *schema.ResourceData, of any) diag.Diagnostics {
		memory, _ := d.Get("memory").(int)
		return append(create(ctx, d, of), diag.FromErr(d.Set("memory_swap", 2*memory))...)
	}
	return r
}

func dockerStandIn() *schema.Provider {
	text, list, set := schema.TypeString, schema.TypeList, schema.TypeSet
	labels := blocks(set, attributes{"label": fixed(text), "value": fixed(text)})
	labels.ForceNew = true
	return &schema.Provider{
		Schema: attributes{"host": open(text)},
		ResourcesMap: map[string]*schema.Resource{
			"docker_volume": made(attributes{"name": fixed(text)}),
			"docker_container": measured(attributes{
				"name": fixed(text), "image": fixed(text), "hostname": fixed(text), "entrypoint": fixed(list), "command": fixed(list), "env": fixed(set),
				"privileged": fixed(schema.TypeBool), "runtime": fixed(text), "gpus": fixed(text), "network_mode": fixed(text), "shm_size": fixed(schema.TypeInt),
				"memory": open(schema.TypeInt), "memory_swap": open(schema.TypeInt), "labels": labels,
				"host":    blocks(set, attributes{"host": fixed(text), "ip": fixed(text)}),
				"volumes": blocks(set, attributes{"container_path": fixed(text), "volume_name": fixed(text)}),
			}),
		},
		DataSourcesMap: map[string]*schema.Resource{"docker_network": {
			Schema: attributes{
				"name":        {Type: text, Required: true},
				"ipam_config": {Type: set, Computed: true, Elem: &schema.Resource{Schema: attributes{"gateway": fixed(text), "subnet": fixed(text)}}},
			},
			ReadContext: func(_ context.Context, d *schema.ResourceData, _ any) diag.Diagnostics {
				d.SetId("bridge")
				return diag.FromErr(d.Set("ipam_config", []any{map[string]any{"gateway": "172.17.0.1", "subnet": "172.17.0.0/16"}}))
			},
		}},
	}
}

func kubernetesStandIn() *schema.Provider {
	text, list := schema.TypeString, schema.TypeList
	metadata := blocks(list, attributes{
		"name": fixed(text), "namespace": fixed(text), "labels": open(schema.TypeMap), "uid": {Type: text, Computed: true},
	})
	metadata.MaxItems = 1
	one := func(a attributes) *schema.Schema {
		s := blocks(list, a)
		s.MaxItems = 1
		return s
	}
	quantities := fixed(schema.TypeMap)
	return &schema.Provider{
		Schema: attributes{"config_path": open(text)},
		ResourcesMap: map[string]*schema.Resource{
			"kubernetes_persistent_volume_claim_v1": made(attributes{
				"metadata": metadata, "wait_until_bound": {Type: schema.TypeBool, Optional: true, Default: true},
				"spec": one(attributes{"access_modes": fixed(schema.TypeSet), "resources": one(attributes{"requests": quantities})}),
			}),
			"kubernetes_pod_v1": made(attributes{
				"metadata": metadata,
				"spec": one(attributes{
					"automount_service_account_token": open(schema.TypeBool),
					"security_context":                one(attributes{"run_as_user": fixed(text), "fs_group": fixed(text)}),
					"container": blocks(list, attributes{
						"name": fixed(text), "image": open(text), "command": fixed(list),
						"env":          blocks(list, attributes{"name": fixed(text), "value": fixed(text)}),
						"resources":    one(attributes{"requests": quantities, "limits": quantities}),
						"volume_mount": blocks(list, attributes{"name": fixed(text), "mount_path": fixed(text)}),
					}),
					"volume": blocks(list, attributes{
						"name": fixed(text), "persistent_volume_claim": one(attributes{"claim_name": fixed(text)}),
					}),
				}),
			}),
		},
	}
}
