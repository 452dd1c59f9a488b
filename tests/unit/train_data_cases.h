/* Made by running LlamaFactory 0.9.5 on the files of golden/llamafactory with these keys. */
    {false, "dataset: corpus\n"
     "packing: false\n"
     "cutoff_len: 100\n"
     "per_device_train_batch_size: 4\n"
     "num_train_epochs: 1.5\n"
     "gradient_accumulation_steps: 3\n"
     "seed: 7\n",
     9, 0x2b7aeed017fc75fdu, 0, 0x0u},
    {false, "dataset: corpus\n"
     "packing: true\n"
     "cutoff_len: 64\n"
     "per_device_train_batch_size: 4\n"
     "max_steps: 12\n"
     "data_seed: 5\n"
     "preprocessing_num_workers: 3\n"
     "preprocessing_batch_size: 7\n"
     "val_size: 0.2\n"
     "eval_strategy: steps\n"
     "eval_steps: 5\n"
     "per_device_eval_batch_size: 3\n",
     12, 0xcd433efce5e0ae4cu, 13, 0xddcb3c6a65a80b74u},
    {false, "dataset: corpus\n"
     "template: llama3\n"
     "cutoff_len: 64\n"
     "per_device_train_batch_size: 4\n"
     "max_steps: 10\n"
     "disable_shuffling: true\n",
     10, 0xca2f1e6db8127d1du, 0, 0x0u},
    {false, "dataset: corpus\n"
     "template: qwen\n"
     "packing: false\n"
     "cutoff_len: 40\n"
     "max_steps: 10\n"
     "per_device_train_batch_size: 5\n"
     "dataloader_drop_last: true\n"
     "max_samples: 23\n"
     "disable_shuffling: true\n",
     10, 0xdbc10dc44e03f25u, 0, 0x0u},
    {false, "dataset: corpus\n"
     "cutoff_len: 64\n"
     "per_device_train_batch_size: 4\n"
     "max_steps: 10\n"
     "disable_shuffling: true\n",
     10, 0x5313c0004ed1bdfcu, 0, 0x0u},
    {true, "dataset: corpus\n"
     "cutoff_len: 64\n"
     "per_device_train_batch_size: 4\n"
     "max_steps: 10\n"
     "disable_shuffling: true\n",
     10, 0x3979e3237c875351u, 0, 0x0u},
    {true, "dataset: corpus\n"
     "packing: false\n"
     "cutoff_len: 40\n"
     "per_device_train_batch_size: 4\n"
     "max_steps: 10\n"
     "max_samples: 30\n",
     10, 0xd187b5c3b7621e21u, 0, 0x0u},
