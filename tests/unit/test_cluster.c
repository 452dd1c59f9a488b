/* The cluster file: what is read, what is refused and where, and what the links cost. */
#include "base/io.h"
#include "test.h"
#include "topo/cluster.h"

static const char two_nodes[] = "name: two-nodes\n"
                                "nodes: 2\n"
                                "devices_per_node: 4\n"
                                "device: {flops: 1e12, bandwidth_gb_s: 100, memory_gb: 16}\n"
                                "links:\n"
                                "- {name: node, devices: 4, bandwidth_gb_s: 50, latency_us: 2}\n"
                                "- {name: net, bandwidth_gb_s: 5, latency_us: 10}\n"
                                "emulate: true\n"
                                "emulate_compute: true\n";

static cluster parse(const char *text) {
  cluster c;
  CHECK_OK(cluster_parse(text, strlen(text), "c.yaml", &c));
  return c;
}

static mesh make_mesh(int64_t a, int64_t b, const int64_t *rank) {
  mesh m;
  CHECK_OK(mesh_init((int64_t[]){a, b}, (const char *const[]){"a", "b"}, 2, rank, a * b, &m));
  return m;
}

TEST(a_cluster_prints_as_the_file_that_it_is_read_from) {
  static const char *const name[] = {"this", "dgx-h100", "cloudmatrix384"};
  str text = {0}, again = {0};
  cluster c = parse(two_nodes);
  CHECK_EQ(c.nodes, 2);
  CHECK_EQ(c.links, 2);
  CHECK(c.emulate && c.emulate_compute);
  for (int i = -1; i < 3; i++) {
    if (i >= 0) CHECK_OK(cluster_load(name[i], &c));
    if (i >= 0) CHECK_STR(c.name, name[i]);
    str_clear(&text);
    str_clear(&again);
    cluster_print(&c, &text);
    c = parse(text.at);
    cluster_print(&c, &again);
    CHECK_STR(again.at, text.at);
  }
  str_free(&text);
  str_free(&again);
}

TEST(a_cluster_comes_from_a_file_or_by_name) {
  char path[300];
  cluster c;
  snprintf(path, sizeof path, "%s/two.yaml", test_dir());
  CHECK_OK(file_write(path, two_nodes, strlen(two_nodes)));
  CHECK_OK(cluster_load(path, &c));
  CHECK_STR(c.name, "two-nodes");
  CHECK_FAILS(cluster_load("dgx-h10", &c), "did you mean \"dgx-h100\"?");
  CHECK_FAILS(cluster_load("none/such.yaml", &c), "cluster \"none/such.yaml\": no such file");
}

TEST(a_group_is_as_slow_as_the_first_link_that_holds_it) {
  cluster c = parse(two_nodes);
  mesh m = make_mesh(2, 4, NULL);
  uint8_t a = 0, b = 1, both[] = {0, 1};
  CHECK_STR(cluster_link_of(&c, &m, &b, 1)->name, "node");
  CHECK_STR(cluster_link_of(&c, &m, &a, 1)->name, "net");
  CHECK_STR(cluster_link_of(&c, &m, both, 2)->name, "net");
  /* four devices are two steps, then the bytes; an all_reduce goes twice */
  CHECK_NEAR(cluster_comm_s(&c, &m, &b, 1, 5e9, 1), 0.1 + 2 * 2e-6, 1e-12);
  CHECK_NEAR(cluster_comm_s(&c, &m, &a, 1, 5e9, 2), 1 + 2 * 10e-6, 1e-12);
  /* rows are packed and unpacked, each read and written, by 100 GB/s */
  CHECK_NEAR(cluster_rows_s(&c, &m, &b, 1, 5e9), 0.1 + 2 * 2e-6 + 4 * 0.05, 1e-12);
  CHECK_NEAR(cluster_work_s(&c, &(cost_work){.flops = 1e12, .bytes = 1e11}), 1, 1e-12);
  CHECK_NEAR(cluster_work_s(&c, &(cost_work){.flops = 1e11, .bytes = 3e11}), 3, 1e-12);
  mesh_free(&m);
  m = make_mesh(4, 2, NULL); /* pairs of neighbours; four that stand two apart */
  CHECK_STR(cluster_link_of(&c, &m, &b, 1)->name, "node");
  CHECK_STR(cluster_link_of(&c, &m, &a, 1)->name, "net");
  mesh_free(&m);
  m = make_mesh(3, 3, NULL); /* 3 to 5 stand on both nodes */
  CHECK_STR(cluster_link_of(&c, &m, &b, 1)->name, "net");
  CHECK_FAILS(cluster_check(&c, &m), "has 8 devices, and 9 are needed");
  mesh_free(&m);
}

/* --- tiers ------------------------------------------------------------------------------------ */

#define DEVICE "device: {flops: 1e12, bandwidth_gb_s: 100}\n"
#define LINKS  "links: [{bandwidth_gb_s: 1, latency_us: 1}]\n"

TEST(tiers_print_as_they_are_read) {
  static const char text[] = DEVICE LINKS "devices_per_node: 8\n"
                                          "tiers:\n"
                                          "- {name: host, memory_gb: 512, read_gb_s: 40, "
                                          "write_gb_s: 20, latency_us: 10, update_gb_s: 60, "
                                          "shared_by: 8}\n"
                                          "- {name: flash, latency_us: 0}\n";
  str out = {0}, again = {0};
  cluster c = parse(text);
  cluster_print(&c, &out);
  CHECK(strstr(out.at,
               "tiers:\n- {name: host, memory_gb: 512.0, read_gb_s: 40.0, write_gb_s: 20.0, "
               "latency_us: 10.0, update_gb_s: 60.0, shared_by: 8}\nemulate"));
  c = parse(out.at);
  CHECK_EQ(cluster_get_tier(&c, TIER_HOST).shared_by, 8);
  CHECK_NEAR(cluster_get_tier(&c, TIER_HOST).memory_gb, 512, 0);
  cluster_print(&c, &again);
  CHECK_STR(again.at, out.at);
  str_free(&out);
  str_free(&again);
}

TEST(what_is_not_said_of_a_tier_is_assumed) {
  cluster c = parse(DEVICE LINKS "tiers: [{name: host, write_gb_s: 7}]\n");
  cluster_tier device = cluster_get_tier(&c, TIER_DEVICE), host = cluster_get_tier(&c, TIER_HOST);
  cluster_tier flash = cluster_get_tier(&c, TIER_FLASH);
  CHECK(device.read_gb_s == 100 && device.write_gb_s == 100 && device.shared_by == 1);
  CHECK(host.read_gb_s == 50 && host.write_gb_s == 7 && host.memory_gb == 0);
  CHECK(flash.read_gb_s == 1 && flash.write_gb_s == 1 && flash.latency_us == 0);
  CHECK(host.update_gb_s == 50);
  c.gb_s = 30; /* measured later: the assumed figures follow */
  CHECK(cluster_get_tier(&c, TIER_HOST).read_gb_s == 15);
}

TEST(devices_share_the_bandwidth_of_updates_by_the_host) {
  cluster c = parse(DEVICE LINKS "devices_per_node: 4\n"
                                 "tiers: [{name: host, update_gb_s: 80, shared_by: 4}]\n");
  CHECK_NEAR(cluster_host_update_s(&c, 8e9, 1), 0.1, 1e-9);
  CHECK_NEAR(cluster_host_update_s(&c, 8e9, 0), 0.1, 1e-9);
  CHECK_NEAR(cluster_host_update_s(&c, 8e9, 3), 0.3, 1e-9);
  CHECK_NEAR(cluster_host_update_s(&c, 8e9, 64), 0.4, 1e-9);
}

TEST(a_copy_takes_the_link_of_the_farther_tier) {
  cluster c = parse(DEVICE LINKS
                    "devices_per_node: 4\n"
                    "tiers:\n"
                    "- {name: host, read_gb_s: 40, write_gb_s: 20, latency_us: 10, shared_by: 4}\n"
                    "- {name: flash, read_gb_s: 2, write_gb_s: 1, latency_us: 100}\n");
  static const struct {
    int from, to;
    int64_t devices;
    double seconds; /* of 4 GB */
  } copy[] = {{TIER_HOST, TIER_DEVICE, 0, 0.1 + 1e-5},  {TIER_HOST, TIER_DEVICE, 1, 0.1 + 1e-5},
              {TIER_DEVICE, TIER_HOST, 1, 0.2 + 1e-5},  {TIER_HOST, TIER_DEVICE, 3, 0.3 + 1e-5},
              {TIER_HOST, TIER_DEVICE, 64, 0.4 + 1e-5}, {TIER_FLASH, TIER_DEVICE, 64, 2 + 1e-4},
              {TIER_FLASH, TIER_HOST, 1, 2 + 1e-4},     {TIER_HOST, TIER_FLASH, 2, 4 + 1e-4},
              {TIER_DEVICE, TIER_DEVICE, 4, 0.08},      {TIER_HOST, TIER_HOST, 1, 0.3 + 1e-5}};
  for (size_t i = 0; i < sizeof copy / sizeof *copy; i++)
    CHECK_NEAR(cluster_copy_s(&c, copy[i].from, copy[i].to, 4e9, copy[i].devices), copy[i].seconds,
               1e-9);
}

TEST(tiers_that_make_no_sense_are_refused_where_they_do_not) {
  static const struct {
    const char *tiers, *why;
  } bad[] = {
      {"{name: host}", "c.yaml:3:8: tiers: expected a list"},
      {"[host]", "tiers[0]: expected a map"},
      {"[{}]", "tiers[0]: "},
      {"[{name: 3}]", "tiers[0].name: expected a string"},
      {"[{name: hots}]", "\"hots\" is no tier; expected host or flash (did you mean \"host\"?)"},
      {"[{name: device}]", "\"device\" is no tier"},
      {"[{name: host}, {name: host}]", "tiers[1].name: there is a row of tier host before"},
      {"[{name: flash}, {name: host}]", "tiers[1].name: tier host is nearer than flash"},
      {"[{name: host}, {name: flash}, {name: flash}]", "tiers[2].name: there is a row"},
      {"[{name: host, gb_s: 3}]", "tiers[0].gb_s: unknown key"},
      {"[{name: host, read_gb_s: 0}]", "tiers[0].read_gb_s: 0 is out of range"},
      {"[{name: host, write_gb_s: -1}]", "tiers[0].write_gb_s: -1 is out of range"},
      {"[{name: host, read_gb_s: .inf}]", "tiers[0].read_gb_s: "},
      {"[{name: host, memory_gb: .nan}]", "tiers[0].memory_gb: "},
      {"[{name: host, memory_gb: 1e300}]", "tiers[0].memory_gb: "},
      {"[{name: host, latency_us: -1}]", "tiers[0].latency_us: -1"},
      {"[{name: host, update_gb_s: 0}]", "tiers[0].update_gb_s: 0 is out of range"},
      {"[{name: flash, update_gb_s: 1}]",
       "tiers[0].update_gb_s: tier flash updates nothing; expected this key of tier host"},
      {"[{name: host, shared_by: 0}]",
       "shared_by: 0 is out of range; expected 1 to 1, the devices"},
      {"[{name: host, shared_by: 2}]", "tiers[0].shared_by: 2 is out of range"},
      {"[{name: host, shared_by: 1.5}]", "tiers[0].shared_by: "},
      {"[{name: host, shared_by: 9223372036854775807}]", "tiers[0].shared_by: "},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    char text[512];
    cluster c;
    snprintf(text, sizeof text, DEVICE LINKS "tiers: %s\n", bad[i].tiers);
    CHECK_FAILS(cluster_parse(text, strlen(text), "c.yaml", &c), bad[i].why);
  }
}

TEST(built_in_clusters_have_the_links_of_their_makers) {
  cluster c;
  CHECK_OK(cluster_load("dgx-h100", &c));
  CHECK_NEAR(cluster_copy_s(&c, TIER_HOST, TIER_DEVICE, 64e9, 8), 1, 1e-4);
  CHECK_OK(cluster_load("cloudmatrix384", &c));
  CHECK_NEAR(cluster_copy_s(&c, TIER_DEVICE, TIER_HOST, 80e9, 8), 1, 1e-4);
  CHECK_OK(cluster_load("this", &c));
  CHECK_NEAR(cluster_copy_s(&c, TIER_HOST, TIER_DEVICE, 15e9, 1), 1, 1e-9);
  CHECK_NEAR(cluster_copy_s(&c, TIER_FLASH, TIER_DEVICE, 1e9, 1), 1 + 1e-4, 1e-9);
}

TEST(ranks_that_are_listed_decide_the_link) {
  cluster c = parse(two_nodes);
  mesh m = make_mesh(2, 4, (int64_t[]){0, 2, 4, 6, 1, 3, 5, 7});
  uint8_t a = 0, b = 1;
  CHECK_STR(cluster_link_of(&c, &m, &a, 1)->name, "node");
  CHECK_STR(cluster_link_of(&c, &m, &b, 1)->name, "net");
  mesh_free(&m);
}

TEST(ranks_in_a_row_that_begin_within_a_node_may_cross_it) {
  cluster c = parse(two_nodes); /* of 4 devices */
  mesh begins = make_mesh(1, 4, (int64_t[]){4, 5, 6, 7}),
       crosses = make_mesh(1, 4, (int64_t[]){2, 3, 4, 5}),
       pairs = make_mesh(2, 2, (int64_t[]){2, 3, 4, 5});
  uint8_t b = 1;
  CHECK_STR(cluster_link_of(&c, &begins, &b, 1)->name, "node");
  CHECK_STR(cluster_link_of(&c, &crosses, &b, 1)->name, "net");
  CHECK_STR(cluster_link_of(&c, &pairs, &b, 1)->name, "node");
  mesh_free(&begins);
  mesh_free(&crosses);
  mesh_free(&pairs);
}

TEST(a_cluster_of_any_size_holds_every_mesh) {
  cluster c;
  mesh m = make_mesh(1024, 8, NULL);
  uint8_t a = 0, b = 1;
  CHECK_OK(cluster_load("dgx-h100", &c));
  CHECK_OK(cluster_check(&c, &m));
  CHECK_STR(cluster_link_of(&c, &m, &b, 1)->name, "nvlink");
  CHECK_STR(cluster_link_of(&c, &m, &a, 1)->name, "infiniband");
  CHECK_OK(cluster_load("cloudmatrix384", &c));
  CHECK_FAILS(cluster_check(&c, &m), "has 384 devices, and 8192 are needed");
  mesh_free(&m);
}

TEST(a_cluster_file_that_makes_no_sense_is_refused_where_it_does_not) {
  static const struct {
    const char *text, *why;
  } bad[] = {
      {"", "c.yaml"},
      {"[]", "expected a map"},
      {DEVICE, "links"},
      {LINKS, "device"},
      {DEVICE LINKS "emulated: true\n",
       "c.yaml:3:11: emulated: unknown key; did you mean \"emulate\"?"},
      {DEVICE LINKS "nodes: 0\n", "c.yaml:3:8: nodes: 0 is out of range"},
      {DEVICE LINKS "devices_per_node: 1e9\n", "devices_per_node: 1000000000 is out of range"},
      {DEVICE LINKS "nodes: many\n", "nodes: expected"},
      {DEVICE LINKS "emulate: 3\n", "emulate: expected"},
      {DEVICE LINKS "name: \"two nodes\"\n", "no blank"},
      {DEVICE LINKS "name: \"\"\n", "expected a name"},
      {"device: {flops: 0, bandwidth_gb_s: 1}\n" LINKS, "device.flops: 0 is out of range"},
      {"device: {flops: .nan, bandwidth_gb_s: 1}\n" LINKS, "device.flops: nan is out of range"},
      {"device: {flops: 1, bandwith_gb_s: 1}\n" LINKS, "bandwidth_gb_s"},
      {"device: {flops: 1, bandwidth_gb_s: 1, memory_gb: -1}\n" LINKS, "device.memory_gb: -1"},
      {DEVICE "links: []\n", "expected 1 to 8 links"},
      {DEVICE "links: [1]\n", "links[0]: expected a map"},
      {DEVICE "links: [{bandwidth_gb_s: 1, latency_us: -1}]\n", "links[0].latency_us: -1"},
      {DEVICE "links: [{bandwidth_gb_s: 1}]\n", "latency_us"},
      {DEVICE "links: [{devices: 4, bandwidth_gb_s: 1, latency_us: 1}]\n", "joins all devices"},
      {DEVICE "links: [{bandwidth_gb_s: 1, latency_us: 1}, {bandwidth_gb_s: 1, latency_us: 1}]\n",
       "links[0]: needs devices"},
      {DEVICE "links: [{devices: 4, bandwidth_gb_s: 1, latency_us: 1}, {devices: 6, "
              "bandwidth_gb_s: 1, latency_us: 1}, {bandwidth_gb_s: 1, latency_us: 1}]\n",
       "links[1].devices: 6 is no multiple of the 4"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    cluster c;
    CHECK_FAILS(cluster_parse(bad[i].text, strlen(bad[i].text), "c.yaml", &c), bad[i].why);
  }
}
