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

TEST(ranks_that_are_listed_decide_the_link) {
  cluster c = parse(two_nodes);
  mesh m = make_mesh(2, 4, (int64_t[]){0, 2, 4, 6, 1, 3, 5, 7});
  uint8_t a = 0, b = 1;
  CHECK_STR(cluster_link_of(&c, &m, &a, 1)->name, "node");
  CHECK_STR(cluster_link_of(&c, &m, &b, 1)->name, "net");
  mesh_free(&m);
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
#define DEVICE "device: {flops: 1e12, bandwidth_gb_s: 1}\n"
#define LINKS  "links: [{bandwidth_gb_s: 1, latency_us: 1}]\n"
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
