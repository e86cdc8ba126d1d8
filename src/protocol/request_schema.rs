//! What requests look like, as far as lengths are concerned: the counterpart of `schema` for a broker.
//!
//! Taken from Kafka's message schemas (`clients/src/main/resources/common/message`); the tests in `guard` compare each
//! table and version with the crate's own encoder and decoder.

use kafka_protocol::messages::ApiKey;

use super::schema::{
    BLOB, BOOL, I8, I16, I32, I64, Kind, LAST, Message, Structure, TEXT, UUID, always, between, plain, since,
};

/// The description of an API's request.
pub(super) fn request(api: ApiKey) -> Option<&'static Message> {
    REQUESTS.iter().find(|message| message.api == api)
}

/// Every description.
pub(super) static REQUESTS: &[Message] = &[
    Message {
        api: ApiKey::Produce,
        versions: 3..=13,
        flexible_from: 9,
        body: plain(&[
            always(TEXT), // transactional_id
            always(I16),  // acks
            always(I32),  // timeout_ms
            always(Kind::Array(&plain(&[
                between(0, 12, TEXT), // name
                since(13, UUID),      // topic_id
                always(Kind::Array(&plain(&[
                    always(I32),  // index
                    always(BLOB), // records
                ]))), // partition_data
            ]))), // topic_data
        ]),
    },
    Message {
        api: ApiKey::Fetch,
        versions: 4..=18,
        flexible_from: 12,
        body: Structure {
            fields: &[
                between(0, 14, I32), // replica_id
                always(I32),         // max_wait_ms
                always(I32),         // min_bytes
                always(I32),         // max_bytes
                always(I8),          // isolation_level
                since(7, I32),       // session_id
                since(7, I32),       // session_epoch
                always(Kind::Array(&plain(&[
                    between(0, 12, TEXT), // topic
                    since(13, UUID),      // topic_id
                    always(Kind::Array(&Structure {
                        fields: &[
                            always(I32),    // partition
                            since(9, I32),  // current_leader_epoch
                            always(I64),    // fetch_offset
                            since(12, I32), // last_fetched_epoch
                            since(5, I64),  // log_start_offset
                            always(I32),    // partition_max_bytes
                        ],
                        tagged: &[(0, since(17, UUID)), (1, since(18, I64))],
                    })), // partitions
                ]))), // topics
                since(
                    7,
                    Kind::Array(&plain(&[
                        between(7, 12, TEXT),       // topic
                        since(13, UUID),            // topic_id
                        since(7, Kind::List(&I32)), // partitions
                    ])),
                ), // forgotten_topics_data
                since(11, TEXT),     // rack_id
            ],
            tagged: &[
                (0, always(TEXT)),
                (
                    1,
                    since(
                        15,
                        Kind::Struct(&plain(&[
                            since(15, I32), // replica_id
                            since(15, I64), // replica_epoch
                        ])),
                    ),
                ),
            ],
        },
    },
    Message {
        api: ApiKey::ListOffsets,
        versions: 1..=10,
        flexible_from: 6,
        body: plain(&[
            always(I32),  // replica_id
            since(2, I8), // isolation_level
            always(Kind::Array(&plain(&[
                always(TEXT), // name
                always(Kind::Array(&plain(&[
                    always(I32),   // partition_index
                    since(4, I32), // current_leader_epoch
                    always(I64),   // timestamp
                ]))), // partitions
            ]))), // topics
            since(10, I32), // timeout_ms
        ]),
    },
    Message {
        api: ApiKey::Metadata,
        versions: 0..=13,
        flexible_from: 9,
        body: plain(&[
            always(Kind::Array(&plain(&[
                since(10, UUID), // topic_id
                always(TEXT),    // name
            ]))), // topics
            since(4, BOOL),       // allow_auto_topic_creation
            between(8, 10, BOOL), // include_cluster_authorized_operations
            since(8, BOOL),       // include_topic_authorized_operations
        ]),
    },
    Message {
        api: ApiKey::OffsetCommit,
        versions: 2..=9,
        flexible_from: 8,
        body: plain(&[
            always(TEXT),       // group_id
            always(I32),        // generation_id_or_member_epoch
            always(TEXT),       // member_id
            since(7, TEXT),     // group_instance_id
            between(0, 4, I64), // retention_time_ms
            always(Kind::Array(&plain(&[
                always(TEXT), // name
                always(Kind::Array(&plain(&[
                    always(I32),   // partition_index
                    always(I64),   // committed_offset
                    since(6, I32), // committed_leader_epoch
                    always(TEXT),  // committed_metadata
                ]))), // partitions
            ]))), // topics
        ]),
    },
    Message {
        api: ApiKey::OffsetFetch,
        versions: 1..=9,
        flexible_from: 6,
        body: plain(&[
            between(0, 7, TEXT), // group_id
            between(
                0,
                7,
                Kind::Array(&plain(&[
                    between(0, 7, TEXT),             // name
                    between(0, 7, Kind::List(&I32)), // partition_indexes
                ])),
            ), // topics
            since(
                8,
                Kind::Array(&plain(&[
                    since(8, TEXT), // group_id
                    since(9, TEXT), // member_id
                    since(9, I32),  // member_epoch
                    since(
                        8,
                        Kind::Array(&plain(&[
                            since(8, TEXT),             // name
                            since(8, Kind::List(&I32)), // partition_indexes
                        ])),
                    ), // topics
                ])),
            ), // groups
            since(7, BOOL),      // require_stable
        ]),
    },
    Message {
        api: ApiKey::FindCoordinator,
        versions: 0..=6,
        flexible_from: 3,
        body: plain(&[
            between(0, 3, TEXT),         // key
            since(1, I8),                // key_type
            since(4, Kind::List(&TEXT)), // coordinator_keys
        ]),
    },
    Message {
        api: ApiKey::JoinGroup,
        versions: 0..=9,
        flexible_from: 6,
        body: plain(&[
            always(TEXT),   // group_id
            always(I32),    // session_timeout_ms
            since(1, I32),  // rebalance_timeout_ms
            always(TEXT),   // member_id
            since(5, TEXT), // group_instance_id
            always(TEXT),   // protocol_type
            always(Kind::Array(&plain(&[
                always(TEXT), // name
                always(BLOB), // metadata
            ]))), // protocols
            since(8, TEXT), // reason
        ]),
    },
    Message {
        api: ApiKey::Heartbeat,
        versions: 0..=4,
        flexible_from: 4,
        body: plain(&[
            always(TEXT),   // group_id
            always(I32),    // generation_id
            always(TEXT),   // member_id
            since(3, TEXT), // group_instance_id
        ]),
    },
    Message {
        api: ApiKey::LeaveGroup,
        versions: 0..=5,
        flexible_from: 4,
        body: plain(&[
            always(TEXT),        // group_id
            between(0, 2, TEXT), // member_id
            since(
                3,
                Kind::Array(&plain(&[
                    since(3, TEXT), // member_id
                    since(3, TEXT), // group_instance_id
                    since(5, TEXT), // reason
                ])),
            ), // members
        ]),
    },
    Message {
        api: ApiKey::SyncGroup,
        versions: 0..=5,
        flexible_from: 4,
        body: plain(&[
            always(TEXT),   // group_id
            always(I32),    // generation_id
            always(TEXT),   // member_id
            since(3, TEXT), // group_instance_id
            since(5, TEXT), // protocol_type
            since(5, TEXT), // protocol_name
            always(Kind::Array(&plain(&[
                always(TEXT), // member_id
                always(BLOB), // assignment
            ]))), // assignments
        ]),
    },
    Message {
        api: ApiKey::DescribeGroups,
        versions: 0..=6,
        flexible_from: 5,
        body: plain(&[
            always(Kind::List(&TEXT)), // groups
            since(3, BOOL),            // include_authorized_operations
        ]),
    },
    Message {
        api: ApiKey::ListGroups,
        versions: 0..=5,
        flexible_from: 3,
        body: plain(&[
            since(4, Kind::List(&TEXT)), // states_filter
            since(5, Kind::List(&TEXT)), // types_filter
        ]),
    },
    Message {
        api: ApiKey::ApiVersions,
        versions: 0..=4,
        flexible_from: 3,
        body: plain(&[
            since(3, TEXT), // client_software_name
            since(3, TEXT), // client_software_version
        ]),
    },
    Message {
        api: ApiKey::CreateTopics,
        versions: 2..=7,
        flexible_from: 5,
        body: plain(&[
            always(Kind::Array(&plain(&[
                always(TEXT), // name
                always(I32),  // num_partitions
                always(I16),  // replication_factor
                always(Kind::Array(&plain(&[
                    always(I32),              // partition_index
                    always(Kind::List(&I32)), // broker_ids
                ]))), // assignments
                always(Kind::Array(&plain(&[
                    always(TEXT), // name
                    always(TEXT), // value
                ]))), // configs
            ]))), // topics
            always(I32),  // timeout_ms
            always(BOOL), // validate_only
        ]),
    },
    Message {
        api: ApiKey::DeleteTopics,
        versions: 1..=6,
        flexible_from: 4,
        body: plain(&[
            since(
                6,
                Kind::Array(&plain(&[
                    since(6, TEXT), // name
                    since(6, UUID), // topic_id
                ])),
            ), // topics
            between(0, 5, Kind::List(&TEXT)), // topic_names
            always(I32),                      // timeout_ms
        ]),
    },
    Message {
        api: ApiKey::DeleteRecords,
        versions: 0..=2,
        flexible_from: 2,
        body: plain(&[
            always(Kind::Array(&plain(&[
                always(TEXT), // name
                always(Kind::Array(&plain(&[
                    always(I32), // partition_index
                    always(I64), // offset
                ]))), // partitions
            ]))), // topics
            always(I32), // timeout_ms
        ]),
    },
    Message {
        api: ApiKey::InitProducerId,
        versions: 0..=5,
        flexible_from: 2,
        body: plain(&[
            always(TEXT),  // transactional_id
            always(I32),   // transaction_timeout_ms
            since(3, I64), // producer_id
            since(3, I16), // producer_epoch
        ]),
    },
    Message {
        api: ApiKey::OffsetForLeaderEpoch,
        versions: 2..=4,
        flexible_from: 4,
        body: plain(&[
            since(3, I32), // replica_id
            always(Kind::Array(&plain(&[
                always(TEXT), // topic
                always(Kind::Array(&plain(&[
                    always(I32), // partition
                    always(I32), // current_leader_epoch
                    always(I32), // leader_epoch
                ]))), // partitions
            ]))), // topics
        ]),
    },
    Message {
        api: ApiKey::AddPartitionsToTxn,
        versions: 0..=5,
        flexible_from: 3,
        body: plain(&[
            since(
                4,
                Kind::Array(&plain(&[
                    since(4, TEXT), // transactional_id
                    since(4, I64),  // producer_id
                    since(4, I16),  // producer_epoch
                    since(4, BOOL), // verify_only
                    since(
                        4,
                        Kind::Array(&plain(&[
                            always(TEXT),             // name
                            always(Kind::List(&I32)), // partitions
                        ])),
                    ), // topics
                ])),
            ), // transactions
            between(0, 3, TEXT), // v3_and_below_transactional_id
            between(0, 3, I64),  // v3_and_below_producer_id
            between(0, 3, I16),  // v3_and_below_producer_epoch
            between(
                0,
                3,
                Kind::Array(&plain(&[
                    always(TEXT),             // name
                    always(Kind::List(&I32)), // partitions
                ])),
            ), // v3_and_below_topics
        ]),
    },
    Message {
        api: ApiKey::AddOffsetsToTxn,
        versions: 0..=4,
        flexible_from: 3,
        body: plain(&[
            always(TEXT), // transactional_id
            always(I64),  // producer_id
            always(I16),  // producer_epoch
            always(TEXT), // group_id
        ]),
    },
    Message {
        api: ApiKey::EndTxn,
        versions: 0..=5,
        flexible_from: 3,
        body: plain(&[
            always(TEXT), // transactional_id
            always(I64),  // producer_id
            always(I16),  // producer_epoch
            always(BOOL), // committed
        ]),
    },
    Message {
        api: ApiKey::WriteTxnMarkers,
        versions: 1..=1,
        flexible_from: 0,
        body: plain(&[
            always(Kind::Array(&plain(&[
                always(I64),  // producer_id
                always(I16),  // producer_epoch
                always(BOOL), // transaction_result
                always(Kind::Array(&plain(&[
                    always(TEXT),             // name
                    always(Kind::List(&I32)), // partition_indexes
                ]))), // topics
                always(I32),  // coordinator_epoch
            ]))), // markers
        ]),
    },
    Message {
        api: ApiKey::TxnOffsetCommit,
        versions: 0..=5,
        flexible_from: 3,
        body: plain(&[
            always(TEXT),   // transactional_id
            always(TEXT),   // group_id
            always(I64),    // producer_id
            always(I16),    // producer_epoch
            since(3, I32),  // generation_id
            since(3, TEXT), // member_id
            since(3, TEXT), // group_instance_id
            always(Kind::Array(&plain(&[
                always(TEXT), // name
                always(Kind::Array(&plain(&[
                    always(I32),   // partition_index
                    always(I64),   // committed_offset
                    since(2, I32), // committed_leader_epoch
                    always(TEXT),  // committed_metadata
                ]))), // partitions
            ]))), // topics
        ]),
    },
    Message {
        api: ApiKey::DescribeAcls,
        versions: 1..=3,
        flexible_from: 2,
        body: plain(&[
            always(I8),   // resource_type_filter
            always(TEXT), // resource_name_filter
            always(I8),   // pattern_type_filter
            always(TEXT), // principal_filter
            always(TEXT), // host_filter
            always(I8),   // operation
            always(I8),   // permission_type
        ]),
    },
    Message {
        api: ApiKey::CreateAcls,
        versions: 1..=3,
        flexible_from: 2,
        body: plain(&[
            always(Kind::Array(&plain(&[
                always(I8),   // resource_type
                always(TEXT), // resource_name
                always(I8),   // resource_pattern_type
                always(TEXT), // principal
                always(TEXT), // host
                always(I8),   // operation
                always(I8),   // permission_type
            ]))), // creations
        ]),
    },
    Message {
        api: ApiKey::DescribeConfigs,
        versions: 1..=4,
        flexible_from: 4,
        body: plain(&[
            always(Kind::Array(&plain(&[
                always(I8),                // resource_type
                always(TEXT),              // resource_name
                always(Kind::List(&TEXT)), // configuration_keys
            ]))), // resources
            always(BOOL),   // include_synonyms
            since(3, BOOL), // include_documentation
        ]),
    },
    Message {
        api: ApiKey::CreatePartitions,
        versions: 0..=3,
        flexible_from: 2,
        body: plain(&[
            always(Kind::Array(&plain(&[
                always(TEXT), // name
                always(I32),  // count
                always(Kind::Array(&plain(&[
                    always(Kind::List(&I32)), // broker_ids
                ]))), // assignments
            ]))), // topics
            always(I32),  // timeout_ms
            always(BOOL), // validate_only
        ]),
    },
    Message {
        api: ApiKey::DeleteGroups,
        versions: 0..=2,
        flexible_from: 2,
        body: plain(&[
            always(Kind::List(&TEXT)), // groups_names
        ]),
    },
    Message {
        api: ApiKey::IncrementalAlterConfigs,
        versions: 0..=1,
        flexible_from: 1,
        body: plain(&[
            always(Kind::Array(&plain(&[
                always(I8),   // resource_type
                always(TEXT), // resource_name
                always(Kind::Array(&plain(&[
                    always(TEXT), // name
                    always(I8),   // config_operation
                    always(TEXT), // value
                ]))), // configs
            ]))), // resources
            always(BOOL), // validate_only
        ]),
    },
    Message {
        api: ApiKey::OffsetDelete,
        versions: 0..=0,
        flexible_from: LAST,
        body: plain(&[
            always(TEXT), // group_id
            always(Kind::Array(&plain(&[
                always(TEXT), // name
                always(Kind::Array(&plain(&[
                    always(I32), // partition_index
                ]))), // partitions
            ]))), // topics
        ]),
    },
    Message {
        api: ApiKey::DescribeCluster,
        versions: 0..=2,
        flexible_from: 0,
        body: plain(&[
            always(BOOL),   // include_cluster_authorized_operations
            since(1, I8),   // endpoint_type
            since(2, BOOL), // include_fenced_brokers
        ]),
    },
    Message {
        api: ApiKey::DescribeProducers,
        versions: 0..=0,
        flexible_from: 0,
        body: plain(&[
            always(Kind::Array(&plain(&[
                always(TEXT),             // name
                always(Kind::List(&I32)), // partition_indexes
            ]))), // topics
        ]),
    },
];
